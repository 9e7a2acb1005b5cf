"""What a sweep finds that no watch has told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from redbox_api.feed import RowKey
from redbox_api.models import FINAL_PHASES, Job, OwnerRef, Phase
from redbox_kube.api.metadata_list import ObjectMetadata
from redbox_kube.api.objects import ApiRefused, ApiUnreachable, Object, ObjectClient, ResourcePath
from redbox_kube.redbox_token import ServiceAccountName
from redbox_kube.slurm_cluster import OrphanPolicy
from redbox_operator.api.constants import CLUSTER_FINALIZER, FINALIZER
from redbox_operator.api.slurmjob import SLURM_JOBS, SlurmJob
from redbox_operator.companion.plan import companion_of
from redbox_operator.metrics import Metrics
from redbox_operator.object_cache import Known
from redbox_operator.slurmcluster.job_feed import RedboxLink, Row
from redbox_operator.slurmcluster.reconciler import SlurmClusters
from redbox_operator.slurmcluster.registry import Links
from redbox_operator.slurmjob import resync as sweeping
from redbox_operator.slurmjob.reconciler import Reconciler
from redbox_operator.slurmjob.resync import Scope, Sweep
from redbox_operator.status_writer import Writer
from tests.operator.making import slurm_cluster, slurm_job

JOB = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
OTHER = "8d444840-9dc0-11d1-b245-5ffdce74fad2"


CLUSTER: Object = {
    "metadata": {"name": "hpc1", "uid": "c", "resourceVersion": "1"},
    "spec": {
        **slurm_cluster().spec.model_dump(mode="json", by_alias=True, exclude={"ca_bundle"}),
        "caBundle": "eA==",
    },
}


class There:
    """What the API server has."""

    def __init__(self) -> None:
        self.jobs: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.reads = 0
        self.closed: set[str] = set()
        self.unreadable: set[str] = set()

        self.serves_slurm_jobs = True
        self.lifted: list[str] = []

    async def set_finalizers(
        self, where: ResourcePath, finalizers: list[str], *, resource_version: str
    ) -> None:
        assert (finalizers, resource_version) == ([], "5")
        self.lifted.append(where.name)

    async def list_metadata(
        self, where: ResourcePath, selection: Any = None
    ) -> AsyncIterator[ObjectMetadata]:
        del selection
        if where.kind != "Pod" and not (
            where.api_version == SLURM_JOBS.api_version and self.serves_slurm_jobs
        ):
            raise ApiRefused(404, "no such kind")
        if where.namespace in self.closed:
            raise ApiRefused(403, "cannot list resource")
        for one in list((self.pods if where.kind == "Pod" else self.jobs).values()):
            if where.namespace in {"", one["metadata"]["namespace"]}:
                yield ObjectMetadata.model_validate(one["metadata"])

    async def list_all(self, where: ResourcePath) -> AsyncIterator[Object]:
        assert where.kind == "SlurmCluster"
        yield CLUSTER

    async def get(self, where: ResourcePath) -> Object | None:
        self.reads += 1
        if where.name in self.unreadable:
            raise RecursionError("maximum recursion depth exceeded while decoding a JSON object")
        return (self.pods if where.kind == "Pod" else self.jobs).get(where.name)


class Link:
    """A red-box with some living jobs."""

    def __init__(self) -> None:
        self.cluster = slurm_cluster()
        self.synced, self.reachable = True, True
        self.rows: dict[RowKey, Row] = {}
        self.cancelled: list[str] = []

    def active_rows(self) -> Iterator[tuple[RowKey, Row]]:
        return ((key, row) for key, row in self.rows.items() if row.phase not in FINAL_PHASES)

    def forget(self, done: RowKey) -> None:
        del self.rows[done]

    async def cancel(self, wanted: RowKey, *, all_attempts: bool) -> list[Job]:
        assert all_attempts
        self.cancelled.append(wanted.key)
        return []


class Stand:
    def __init__(self, namespaces: tuple[str, ...] = ()) -> None:
        self.there, self.link, self.known, metrics = There(), Link(), Known(), Metrics()
        self.metrics = metrics
        writer = Writer(cast("ObjectClient", self.there), metrics)
        links = Links()
        self.reconciler = Reconciler(writer, self.known, links, "image", metrics)
        clusters = SlurmClusters(
            writer,
            ServiceAccountName("redbox-system", "redbox-operator"),
            self.known,
            links,
            wake_uid=print,
            wake_cluster=print,
        )
        clusters.seen(CLUSTER)
        links.by_name["hpc1"] = cast("RedboxLink", self.link)
        self.clusters = clusters
        scope = Scope((SLURM_JOBS,), namespaces)
        self.sweep = Sweep(cast("ObjectClient", self.there), scope, self.reconciler, clusters, metrics)

    def job(self, version: str = "5", **metadata: Any) -> Object:
        made = slurm_job()
        metadata = {**made.metadata, "uid": JOB, "resourceVersion": version, **metadata}
        spec = made.spec.model_dump(by_alias=True, exclude_defaults=True)
        return {"metadata": metadata, "spec": spec}

    def row(
        self,
        key: str,
        digest: str | None = "sha256:1",
        phase: Phase = Phase.RUNNING,
        namespace: str = "farm",
    ) -> None:
        owner = OwnerRef(cluster="kube", namespace=namespace, account="default")
        row = Job(key=key, attempt=1, owner=owner, user="alice", phase=phase, job_id="7")
        row = row.model_copy(update={"spec_digest": digest})
        self.link.rows[RowKey(key, 1, namespace, "default")] = Row.of(row)

    async def run(self) -> None:
        await self.sweep._sweep()

    @property
    def orphans(self) -> list[str]:
        return self.clusters._entries["hpc1"].orphans


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "TELLING_S", 0.0)


async def test_one_that_no_watch_has_told_of_is_read() -> None:
    stand = Stand()
    stand.there.jobs["cow"] = stand.job()
    await stand.run()
    assert [place.name for place in stand.known.jobs] == ["cow"]
    assert len(stand.reconciler.queue) == 1


async def test_what_is_known_in_its_newest_version_is_not_read() -> None:
    stand = Stand()
    stand.there.jobs["cow"] = stand.job()
    stand.known.job_seen(SlurmJob.model_validate(stand.job()))
    await stand.run()
    assert stand.there.reads == 0


async def test_one_that_cannot_be_taken_in_keeps_nobody_from_the_others() -> None:
    stand = Stand()
    for name, uid in (("bad", OTHER), ("cow", JOB)):
        stand.there.jobs[name] = stand.job(name=name, uid=uid)
        metadata = {"namespace": "farm", "name": f"{name}-job", "uid": f"pod-{uid}", "resourceVersion": "6"}
        stand.there.pods[f"{name}-job"] = {"metadata": metadata}
    stand.there.unreadable = {"bad", "bad-job"}
    await stand.run()
    assert [place.name for place in stand.known.jobs] == ["cow"]
    assert [name for _, name in stand.known.companions] == ["cow-job"]
    counted = stand.metrics.registry.get_sample_value("redbox_operator_errors_total", {"cause": "defect"})
    assert counted == 2


async def test_an_api_server_that_does_not_answer_is_no_fault_of_one_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(where: ResourcePath) -> None:
        raise ApiUnreachable(where.name)

    stand = Stand()
    stand.there.jobs["cow"] = stand.job()
    monkeypatch.setattr(stand.there, "get", away)
    with pytest.raises(ApiUnreachable):
        await stand.run()


async def test_a_change_that_was_missed_is_read() -> None:
    stand = Stand()
    stand.known.job_seen(SlurmJob.model_validate(stand.job()))
    stand.there.jobs["cow"] = stand.job(version="6", finalizers=["x"])
    await stand.run()
    (known,) = stand.known.jobs.values()
    assert known.unpacked().job.finalizers == ["x"]


async def test_a_deleted_slurmcluster_stays_until_all_slurmjobs_have_been_listed() -> None:
    """A new process knows none at first: to it, no SlurmCluster seems to be in use."""
    stand = Stand()
    deletion = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [CLUSTER_FINALIZER]}
    deleted = {**CLUSTER, "metadata": {**CLUSTER["metadata"], **deletion, "resourceVersion": "5"}}
    stand.clusters.seen(deleted)
    await stand.clusters._reconcile("hpc1")
    assert stand.there.lifted == []
    await stand.run()
    stand.clusters.seen(deleted)
    await stand.clusters._reconcile("hpc1")
    assert stand.there.lifted == ["hpc1"]


async def test_what_went_while_nobody_watched_is_forgotten() -> None:
    stand = Stand()
    stand.known.job_seen(SlurmJob.model_validate(stand.job()))
    pod = {"metadata": {"namespace": "farm", "name": "cow-job", "uid": "p", "labels": {}}}
    stand.known.companion_seen(companion_of(pod))
    await stand.run()
    assert (stand.known.jobs, stand.known.companions) == ({}, {})


async def test_jobs_whose_slurmjob_is_gone_are_reported() -> None:
    stand = Stand()
    stand.there.jobs["cow"] = stand.job()
    stand.row(JOB)
    stand.row(OTHER)
    await stand.run()
    assert stand.orphans == ["7"]
    assert stand.link.cancelled == []


async def test_they_are_cancelled_where_the_slurmcluster_says_so() -> None:
    stand = Stand()
    spec = stand.link.cluster.spec.model_copy(update={"orphan_policy": OrphanPolicy.CANCEL})
    stand.link.cluster = stand.link.cluster.model_copy(update={"spec": spec})
    stand.row(OTHER)
    await stand.run()
    assert stand.link.cancelled == [OTHER]


async def test_a_namespace_that_lets_nobody_in_keeps_no_other_from_being_looked_at() -> None:
    """Whoever rules it may delete the RoleBinding of an operator that is limited to some."""
    stand = Stand(namespaces=("shut", "farm"))
    known = stand.job(name="old", uid=OTHER, namespace="shut")
    stand.known.job_seen(SlurmJob.model_validate(known))
    pod = {"metadata": {"namespace": "shut", "name": "old-job", "uid": "p", "labels": {}}}
    stand.known.companion_seen(companion_of(pod))
    stand.there.jobs = {"old": known, "cow": stand.job()}
    stand.there.closed = {"shut"}
    stand.row(OTHER, namespace="shut")
    await stand.run()
    assert {place.name for place in stand.known.jobs} == {"old", "cow"}
    assert [name for _, name in stand.known.companions] == ["old-job"]
    assert stand.orphans == []
    assert stand.clusters._knows_jobs
    stand.there.closed, stand.there.jobs = set(), {"cow": stand.job()}
    await stand.run()
    assert {place.name for place in stand.known.jobs} == {"cow"}
    assert stand.orphans == ["7"]


async def test_an_operator_of_all_namespaces_that_may_not_list_them_has_looked_at_nothing() -> None:
    stand = Stand()
    stand.there.closed = {""}
    with pytest.raises(ApiRefused):
        await stand.run()


async def test_an_operator_of_some_namespaces_cancels_no_orphans() -> None:
    stand = Stand(namespaces=("farm",))
    spec = stand.link.cluster.spec.model_copy(update={"orphan_policy": OrphanPolicy.CANCEL})
    stand.link.cluster = stand.link.cluster.model_copy(update={"spec": spec})
    stand.row(OTHER)
    await stand.run()
    assert stand.link.cancelled == []


@pytest.mark.parametrize(("key", "digest"), [("my-own-key", "sha256:1"), (OTHER, None)])
async def test_jobs_that_somebody_submitted_without_kubernetes_are_no_orphans(
    key: str, digest: str | None
) -> None:
    stand = Stand()
    stand.row(key, digest)
    await stand.run()
    assert stand.orphans == []


async def test_rows_of_ended_jobs_whose_slurmjob_is_gone_are_not_kept() -> None:
    """Red-box tells of each end, and remembers it for a month."""
    stand = Stand()
    stand.there.jobs["cow"] = stand.job()
    stand.row(JOB, phase=Phase.SUCCEEDED)
    stand.row(OTHER, phase=Phase.SUCCEEDED)
    stand.row("my-own-key", phase=Phase.FAILED)
    await stand.run()
    assert [key.key for key in stand.link.rows] == [JOB]
    assert stand.orphans == []


async def test_before_all_slurmclusters_were_seen_none_is_taken_for_missing() -> None:
    stand = Stand()
    job = SlurmJob.model_validate(stand.job(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=[FINALIZER]))
    stand.clusters.links.by_name.clear()
    stand.reconciler.job_seen(job)
    await stand.reconciler.reconcile(job.place)
    assert stand.there.lifted == []  # its SlurmCluster may yet come, and its job has to be cancelled then
    await stand.sweep._of_clusters()
    assert len(stand.reconciler.queue) == 1
    stand.clusters.links.by_name.clear()
    await stand.reconciler.reconcile(job.place)
    assert stand.there.lifted == ["cow"]


def companion(name: str, **metadata: Any) -> Object:
    labels = {"redbox.dev/slurmjob-uid": JOB}
    given = {"namespace": "farm", "name": name, "uid": name, "resourceVersion": "5", "labels": labels}
    return {"metadata": {**given, **metadata}}


async def test_objects_that_cannot_be_read_keep_no_others_from_being_read() -> None:
    stand = Stand()
    stand.there.jobs = {
        "a": stand.job(name="a", generation=10**400, creationTimestamp=object()),
        "b": stand.job(name="b", uid=OTHER),
    }
    stand.there.pods = {"a": companion("a", deletionTimestamp="soon"), "b": companion("b")}
    await stand.run()
    assert [place.name for place in stand.known.jobs] == ["b"]
    assert [name for _, name in stand.known.companions] == ["b"]
    assert stand.sweep._unreadable == {"SlurmJob/farm/a", "Pod/farm/a"}
    stand.there.jobs.clear()
    stand.there.pods["a"] = companion("a")
    await stand.run()
    assert stand.sweep._unreadable == set()
    assert len(stand.known.companions) == 2


async def test_a_slurmjob_that_cannot_be_read_is_not_gone() -> None:
    stand = Stand()
    stand.there.jobs["cow"] = stand.job(creationTimestamp=object())
    stand.row(JOB)
    await stand.run()
    assert stand.orphans == []


async def test_a_404_in_the_place_of_the_slurmjobs_makes_no_job_an_orphan() -> None:
    stand = Stand()
    stand.reconciler.job_seen(SlurmJob.model_validate(stand.job()))
    stand.row(JOB)
    stand.there.serves_slurm_jobs = False
    with pytest.raises(ApiRefused):
        await stand.run()
    assert (stand.orphans, len(stand.known.jobs)) == ([], 1)
