"""What a whole uninstall leaves, and what it does when the API server does not do all of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from redbox_kube.api.objects import ApiError, ApiRefused, ApiUnreachable, ObjectClient, ResourcePath
from redbox_kube.api.retrying_objects import RetryingObjects
from redbox_kube.names import API_VERSION
from redbox_operator.api.constants import CLUSTER_FINALIZER, FINALIZER, cluster_finalizer
from redbox_operator.cli import app
from redbox_operator.install.uninstall import Jobs, NotUninstalled, Uninstall

OURS, OLD = API_VERSION, "wlm.sylabs.io/v1alpha1"


def selects(labels: Mapping[str, str], label: str, value: str) -> bool:
    return not label or (label in labels and value in {"", labels[label]})


@dataclass
class Api:
    """An API server with objects in it, kinds that it does not know, and things that it cannot do."""

    there: dict[ResourcePath, dict[str, Any]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    faults: dict[str, ApiError] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def put(self, where: ResourcePath, **more: Any) -> None:
        metadata = {"name": where.name, "namespace": where.namespace, "uid": f"u-{where.name}"}
        metadata |= {"resourceVersion": "1", **more.pop("metadata", {})}
        self.there[where] = {"metadata": metadata, **more}

    def left(self, kind: str) -> list[str]:
        return sorted(where.name for where in self.there if where.kind == kind)

    def finalizers(self, name: str) -> list[str]:
        (found,) = [one for where, one in self.there.items() if where.name == name]
        return list(found["metadata"].get("finalizers", []))

    async def pages(
        self, where: ResourcePath, selection: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[list[dict[str, Any]], str]]:
        self._asked("list", where)
        if where.api_version in self.unknown:
            raise ApiRefused(HTTPStatus.NOT_FOUND, "404 page not found")
        label, _, value = (selection or {}).get("labelSelector", "").partition("=")
        items = [
            one
            for at, one in self.there.items()
            if (at.kind, at.api_version) == (where.kind, where.api_version)
            and where.namespace in {"", at.namespace}
            and selects(one["metadata"].get("labels", {}), label, value)
        ]
        for item in items:
            yield [item], "1"

    async def list_all(self, where: ResourcePath) -> AsyncIterator[dict[str, Any]]:
        async for items, _ in self.pages(where):
            for item in items:
                yield item

    async def close(self) -> None:
        pass

    async def get(self, where: ResourcePath) -> dict[str, Any] | None:
        self._asked("get", where)
        return self.there.get(where)

    async def delete(self, where: ResourcePath, *, uid: str = "", grace_s: int | None = None) -> None:
        del uid, grace_s
        self._asked("delete", where)
        self.there.pop(where, None)

    async def merge(self, where: ResourcePath, body: dict[str, Any], *, subresource: str = "") -> None:
        del subresource
        self._asked("merge", where)
        self.there[where] |= body

    async def apply_status(self, where: ResourcePath, status: dict[str, Any], *, uid: str) -> dict[str, Any]:
        del uid
        self._asked("status", where)
        self.there[where] |= {"status": status}
        return self.there[where]

    async def set_finalizers(
        self, where: ResourcePath, finalizers: list[str], *, resource_version: str
    ) -> dict[str, Any]:
        assert resource_version == self.there[where]["metadata"]["resourceVersion"]
        self._asked("finalizers", where)
        self.there[where]["metadata"]["finalizers"] = finalizers
        return self.there[where]

    def _asked(self, verb: str, where: ResourcePath) -> None:
        self.asked.append(f"{verb} {where.kind}")
        if fault := self.faults.get(f"{verb} {where.name}"):
            raise fault


def has_job(api: Api, name: str, namespace: str = "alice", phase: str = "Running", kind: str = OURS) -> None:
    """A SlurmJob with its companion, beside a pod that only says that it is one."""
    where = ResourcePath("SlurmJob", name, namespace, kind)
    api.put(where, metadata={"finalizers": ["others", FINALIZER]}, status={"phase": phase})
    labels = {"redbox.dev/slurmjob-uid": f"u-{name}"}
    owners = [{"uid": f"u-{name}"}]
    api.put(
        ResourcePath("Pod", f"{name}-job", namespace), metadata={"labels": labels, "ownerReferences": owners}
    )
    api.put(ResourcePath("Pod", f"{name}-not", namespace), metadata={"labels": labels})
    api.put(
        ResourcePath("Pod", f"{name}-far", "mallory"), metadata={"labels": labels, "ownerReferences": owners}
    )


def has_cluster(api: Api, name: str, *finalizers: str) -> None:
    metadata = {"name": name, "uid": "u", "resourceVersion": "1", "finalizers": list(finalizers)}
    api.put(ResourcePath("SlurmCluster", name, api_version=OURS), metadata=metadata, spec={})


def taking_out(api: Api, said: list[str], *watched: str) -> Uninstall:
    return Uninstall(cast("ObjectClient", api), "redbox-system", watched, Jobs.KEEP, 1.0, said.append)


async def test_what_goes_with_a_job_is_its_companion_and_our_finalizer() -> None:
    api, said = Api(), list[str]()
    has_job(api, "long")
    has_job(api, "over", phase="Succeeded")
    await taking_out(api, said).run()
    assert api.left("Pod") == ["long-far", "long-not", "over-far", "over-job", "over-not"]
    assert api.finalizers("long") == api.finalizers("over") == ["others"]


async def test_ten_thousand_jobs_need_no_list_each_and_no_look_at_what_was_listed() -> None:
    api, said = Api(), list[str]()
    for number in range(20):
        has_job(api, f"job-{number}")
    await taking_out(api, said).run()
    assert api.asked.count("list Pod") == 1
    assert "get SlurmJob" not in api.asked


async def test_a_finalizer_is_lifted_from_the_newest_version_where_the_listed_one_has_changed() -> None:
    class Changed(Api):
        async def set_finalizers(
            self, where: ResourcePath, finalizers: list[str], *, resource_version: str
        ) -> dict[str, Any]:
            if resource_version == "1":
                self.there[where] = {"metadata": {"finalizers": ["newer", FINALIZER], "resourceVersion": "2"}}
                return cast("dict[str, Any]", None)
            return await super().set_finalizers(where, finalizers, resource_version=resource_version)

    api = Changed()
    has_job(api, "over", phase="Failed")
    await taking_out(api, []).run()
    assert api.finalizers("over") == ["newer"]


async def test_an_old_kind_that_is_here_no_more_has_no_jobs() -> None:
    api = Api(unknown={OLD, "slurm.sylabs.io/v1alpha1"})
    has_job(api, "long")
    await taking_out(api, []).run()
    assert api.finalizers("long") == ["others"]


async def test_without_our_own_kind_nothing_is_removed() -> None:
    api = Api(unknown={OURS})
    has_job(api, "old", kind=OLD)
    with pytest.raises(ApiRefused):
        await taking_out(api, []).run()
    assert api.finalizers("old") == ["others", FINALIZER]


async def test_what_cannot_be_removed_is_named_and_the_rest_goes() -> None:
    api, said = Api(), list[str]()
    for name in ("one", "two", "three"):
        has_job(api, name)
    has_cluster(api, "hpc1", CLUSTER_FINALIZER)
    api.put(ResourcePath("Node", "hpc1.debug"), metadata={"labels": {"redbox.dev/virtual": "true"}})
    api.faults = {
        "finalizers two": ApiRefused(500, "a webhook does not answer"),
        "delete three-job": ApiUnreachable("the API server does not answer"),
    }
    with pytest.raises(NotUninstalled, match="all is removed but for 2: ") as ended:
        await taking_out(api, said).run()
    for why in (
        "alice/two: .*: a webhook does not answer",
        "alice/three: .*: the API server does not answer",
    ):
        assert re.search(why, str(ended.value))
        assert any(re.match(f"not removed: the finalizer of {why}", line) for line in said)
    assert api.finalizers("one") == ["others"]
    assert api.finalizers("hpc1") == []
    assert api.left("Node") == []

    api.faults = {}
    await taking_out(api, said).run()
    assert api.finalizers("two") == api.finalizers("three") == ["others"]


def test_the_command_ends_with_1_and_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(faults={"finalizers one": ApiRefused(500, "a webhook does not answer")})
    has_job(api, "one")

    async def connect(field_manager: str) -> Api:
        assert field_manager == "redbox-operator"
        return api

    monkeypatch.setattr(RetryingObjects, "connect", connect)
    ended = CliRunner().invoke(app, ["uninstall", "--namespace=redbox-system"])
    assert ended.exit_code == 1
    assert "alice/one" in ended.stderr
    assert "a webhook does not answer" in ended.stderr


@pytest.mark.parametrize("unreadable", ["SlurmCluster", "Node", "Pod"])
async def test_nothing_is_removed_before_everything_can_be_read(unreadable: str) -> None:
    class Blind(Api):
        def _asked(self, verb: str, where: ResourcePath) -> None:
            super()._asked(verb, where)
            if (verb, where.kind) == ("list", unreadable) and where.namespace != "redbox-system":
                raise ApiRefused(403, f"{unreadable} is forbidden")

    api = Blind()
    has_job(api, "long")
    with pytest.raises(ApiRefused):
        await taking_out(api, []).run()
    assert api.finalizers("long") == ["others", FINALIZER]
    assert not [one for one in api.asked if one.startswith("delete")]


async def test_a_limited_release_lifts_its_own_finalizer_and_leaves_that_of_another() -> None:
    api = Api()
    own = cluster_finalizer("redbox-system", limited=True)
    others = cluster_finalizer("team-b", limited=True)
    has_cluster(api, "hpc1", own, others)
    has_cluster(api, "of an earlier release", CLUSTER_FINALIZER)
    await taking_out(api, [], "alice").run()
    assert api.finalizers("hpc1") == [others]
    assert api.finalizers("of an earlier release") == []


async def test_a_limited_release_touches_no_node() -> None:
    api = Api()
    api.put(ResourcePath("Node", "hpc1.debug"), metadata={"labels": {"redbox.dev/virtual": "true"}})
    await taking_out(api, [], "alice").run()
    assert api.left("Node") == ["hpc1.debug"]
    assert "list Node" not in api.asked


async def test_a_limited_release_lets_go_of_the_jobs_of_its_namespaces_only() -> None:
    api = Api()
    has_job(api, "long", "alice")
    has_job(api, "other", "bob")
    await taking_out(api, [], "alice").run()
    assert (api.finalizers("long"), api.finalizers("other")) == (["others"], ["others", FINALIZER])
    assert "other-job" in api.left("Pod")
