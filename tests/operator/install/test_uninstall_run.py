"""What a whole uninstall leaves, and what it does when the API server does not do all of it."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from redbox_clusters.names import FINALIZER_VOLUME, OLD_SLURM_JOBS, OLDEST_SLURM_JOBS, SLURM_JOBS
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS
from redbox_kube.api import kinds
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import ApiRefused, ApiUnreachable, ResourcePath
from redbox_kube.api.retrying_objects import RetryingObjects
from redbox_operator.api.constants import CLUSTER_FINALIZER, FINALIZER, cluster_finalizer
from redbox_operator.cli import app
from redbox_operator.install.uninstall import JobsPolicy, NotUninstalled, Uninstall
from tests.clusters.virtual_pods import has_node
from tests.kube.fakes import FakeApiServer


def finalizers(api: FakeApiServer, name: str) -> list[str]:
    (found,) = [body for where, body in api.objects.items() if where.name == name]
    return list(found["metadata"].get("finalizers", []))


def has_job(
    api: FakeApiServer, name: str, namespace: str = "alice", phase: str = "Running", kind: Kind = SLURM_JOBS
) -> None:
    """A SlurmJob with its companion, beside a pod that only says that it is one."""
    where = ResourcePath(kind, name, namespace)
    api.put(
        where, metadata={"uid": f"u-{name}", "finalizers": ["others", FINALIZER]}, status={"phase": phase}
    )
    labels = {"redbox.dev/slurmjob-uid": f"u-{name}"}
    owners = [{"uid": f"u-{name}"}]
    api.put(
        ResourcePath(kinds.POD, f"{name}-job", namespace),
        metadata={"labels": labels, "ownerReferences": owners},
    )
    api.put(ResourcePath(kinds.POD, f"{name}-not", namespace), metadata={"labels": labels})
    api.put(
        ResourcePath(kinds.POD, f"{name}-far", "mallory"),
        metadata={"labels": labels, "ownerReferences": owners},
    )


def has_cluster(api: FakeApiServer, name: str, *finalizers: str) -> None:
    metadata = {"name": name, "uid": "u", "resourceVersion": "1", "finalizers": list(finalizers)}
    api.put(ResourcePath(SLURM_CLUSTERS, name), metadata=metadata, spec={})


def taking_out(api: FakeApiServer, report: list[str], *watched: str) -> Uninstall:
    return Uninstall(api.client, "redbox-system", watched, JobsPolicy.KEEP, 1.0, report.append)


async def test_what_goes_with_a_job_is_its_companion_and_our_finalizer() -> None:
    api, report = FakeApiServer(), list[str]()
    has_job(api, "long")
    has_job(api, "over", phase="Succeeded")
    await taking_out(api, report).run()
    assert api.names("Pod") == ["long-far", "long-not", "over-far", "over-job", "over-not"]
    assert finalizers(api, "long") == finalizers(api, "over") == ["others"]


async def test_volumes_stay_and_wait_for_none_to_delete_their_folders() -> None:
    api = FakeApiServer()
    for name, finalizer in (("ours", FINALIZER_VOLUME), ("theirs", "external/finalizer")):
        protected = ["kubernetes.io/pv-protection", finalizer]
        api.put(ResourcePath(kinds.PERSISTENT_VOLUME, name), metadata={"finalizers": protected})
    await taking_out(api, []).run()
    assert finalizers(api, "ours") == ["kubernetes.io/pv-protection"]
    assert finalizers(api, "theirs") == ["kubernetes.io/pv-protection", "external/finalizer"]


async def test_without_the_right_to_list_volumes_there_are_none_of_ours() -> None:
    api = FakeApiServer()
    has_job(api, "over", phase="Succeeded")
    api.fail(ApiRefused(403, "cannot list persistentvolumes"), verb="list", kind="PersistentVolume")
    await taking_out(api, []).run()
    assert finalizers(api, "over") == ["others"]


async def test_ten_thousand_jobs_need_no_list_each_and_no_look_at_what_was_listed() -> None:
    api, report = FakeApiServer(), list[str]()
    for number in range(20):
        has_job(api, f"job-{number}")
    await taking_out(api, report).run()
    assert api.asked.count("list Pod") == 1
    assert "get SlurmJob" not in api.asked


async def test_a_finalizer_is_lifted_from_the_newest_version_where_the_listed_one_has_changed() -> None:
    api = FakeApiServer()
    has_job(api, "over", phase="Failed")
    api.before_next_write = lambda: api.put(
        ResourcePath(SLURM_JOBS, "over", "alice"), metadata={"finalizers": ["newer", FINALIZER]}
    )
    await taking_out(api, []).run()
    assert finalizers(api, "over") == ["newer"]


async def test_an_old_kind_that_is_here_no_more_has_no_jobs() -> None:
    api = FakeApiServer()
    api.unserved = {OLD_SLURM_JOBS.api_version, OLDEST_SLURM_JOBS.api_version}
    has_job(api, "long")
    await taking_out(api, []).run()
    assert finalizers(api, "long") == ["others"]


async def test_without_our_own_kind_nothing_is_removed() -> None:
    api = FakeApiServer()
    api.unserved = {SLURM_JOBS.api_version}
    has_job(api, "old", kind=OLD_SLURM_JOBS)
    with pytest.raises(ApiRefused):
        await taking_out(api, []).run()
    assert finalizers(api, "old") == ["others", FINALIZER]


async def test_what_cannot_be_removed_is_named_and_the_rest_goes() -> None:
    api, report = FakeApiServer(), list[str]()
    for name in ("one", "two", "three"):
        has_job(api, name)
    has_cluster(api, "hpc1", CLUSTER_FINALIZER)
    has_node(api, "hpc1.debug", "hpc1")
    api.fail(ApiRefused(500, "a webhook does not answer"), verb="finalizers", name="two")
    api.fail(ApiUnreachable("the API server does not answer"), verb="delete", name="three-job")
    with pytest.raises(NotUninstalled, match="2 objects are not removed: ") as ended:
        await taking_out(api, report).run()
    for why in (
        "alice/two: .*: a webhook does not answer",
        "alice/three: .*: the API server does not answer",
    ):
        assert re.search(why, str(ended.value))
        assert any(re.match(f"not removed: the finalizer of {why}", line) for line in report)
    assert finalizers(api, "one") == ["others"]
    assert finalizers(api, "hpc1") == []
    assert api.names("Node") == []

    api.recover()
    await taking_out(api, report).run()
    assert finalizers(api, "two") == finalizers(api, "three") == ["others"]


def test_the_command_ends_with_1_and_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApiServer()
    api.fail(ApiRefused(500, "a webhook does not answer"), verb="finalizers", name="one")
    has_job(api, "one")

    async def connect(field_manager: str) -> FakeApiServer:
        assert field_manager == "redbox-operator"
        return api

    monkeypatch.setattr(RetryingObjects, "connect", connect)
    ended = CliRunner().invoke(app, ["uninstall", "--namespace=redbox-system"])
    assert ended.exit_code == 1
    assert "alice/one" in ended.stderr
    assert "a webhook does not answer" in ended.stderr


@pytest.mark.parametrize("unreadable", ["SlurmCluster", "Node", "Pod"])
async def test_nothing_is_removed_before_everything_can_be_read(unreadable: str) -> None:
    api = FakeApiServer()
    has_job(api, "long")
    api.fail(ApiRefused(403, f"{unreadable} is forbidden"), verb="list", kind=unreadable)
    with pytest.raises(ApiRefused):
        await taking_out(api, []).run()
    assert finalizers(api, "long") == ["others", FINALIZER]
    assert not [item for item in api.asked if item.startswith("delete")]


async def test_a_limited_release_lifts_its_own_finalizer_and_leaves_that_of_another() -> None:
    api = FakeApiServer()
    own = cluster_finalizer("redbox-system", limited=True)
    others = cluster_finalizer("team-b", limited=True)
    has_cluster(api, "hpc1", own, others)
    has_cluster(api, "of an earlier release", CLUSTER_FINALIZER)
    await taking_out(api, [], "alice").run()
    assert finalizers(api, "hpc1") == [others]
    assert finalizers(api, "of an earlier release") == []


async def test_a_real_node_with_our_label_stays_without_what_was_published_on_it() -> None:
    """Its kubelet may set any such label, and makes a Node that was deleted only when it starts again."""
    api = FakeApiServer()
    labels = {"redbox.dev/virtual": "true", "debug.hpc1.redbox.dev/partition": "debug", "zone": "a"}
    capacity = {"cpu": "8", "debug.hpc1.redbox.dev/nodes": "4"}
    api.put(
        ResourcePath(kinds.NODE, "worker-1"),
        metadata={"labels": labels},
        spec={"providerID": "kind://worker-1"},
        status={"capacity": capacity, "images": [{"names": ["x"]}]},
    )
    has_node(api, "hpc1.debug", "hpc1")
    await taking_out(api, []).run()
    assert api.names("Node") == ["worker-1"]
    left = api.objects[ResourcePath(kinds.NODE, "worker-1")]
    assert left["metadata"]["labels"] == {"redbox.dev/virtual": "true", "zone": "a"}
    assert left["status"] == {"capacity": {"cpu": "8"}, "images": [{"names": ["x"]}]}


async def test_a_limited_release_touches_no_node() -> None:
    api = FakeApiServer()
    has_node(api, "hpc1.debug", "hpc1")
    await taking_out(api, [], "alice").run()
    assert api.names("Node") == ["hpc1.debug"]
    assert "list Node" not in api.asked


async def test_a_limited_release_lets_go_of_the_jobs_of_its_namespaces_only() -> None:
    api = FakeApiServer()
    has_job(api, "long", "alice")
    has_job(api, "other", "bob")
    await taking_out(api, [], "alice").run()
    assert (finalizers(api, "long"), finalizers(api, "other")) == (["others"], ["others", FINALIZER])
    assert "other-job" in api.names("Pod")
