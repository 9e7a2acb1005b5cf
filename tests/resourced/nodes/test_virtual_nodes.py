"""When a virtual node is made, left alone and deleted, by a scripted API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import cast

import pytest

from redbox_kube.api.objects import ApiUnreachable, Object, ObjectClient, ResourcePath
from redbox_resourced.nodes.desired import DesiredNode, desired_nodes
from redbox_resourced.nodes.manifest import KubeletAddress
from redbox_resourced.nodes.node_view import NodeView
from redbox_resourced.nodes.readiness import NodeReadiness, ServingStatus
from redbox_resourced.nodes.server_side_apply import NodeApplier
from redbox_resourced.nodes.virtual_nodes import VirtualNodes
from redbox_resourced.partitions.overrides import Overrides
from tests.resourced.factories import followed, node, partition


class Api:
    """Nodes by name, and the pods that have not ended."""

    def __init__(self, pods: list[Object] | None = None) -> None:
        self.pods = pods or []
        self.nodes: dict[str, Object] = {}
        self.deleted: list[str] = []
        self.applied: list[str] = []
        self.labels: dict[str, str] = {}
        self.broken_for = ""

    async def create(self, _where: ResourcePath, body: Object) -> Object | None:
        name = body["metadata"]["name"]
        if name in self.nodes:
            return None
        body["metadata"] |= {"uid": f"uid-of-{name}", "resourceVersion": "1"}
        return self.nodes.setdefault(name, body)

    async def get(self, where: ResourcePath) -> Object | None:
        return self.nodes.get(where.name)

    async def apply(self, where: ResourcePath, body: Object, **_options: str) -> Object:
        if where.name == self.broken_for:
            raise ApiUnreachable("the API server does not answer")
        self.applied.append(where.name)
        self.labels |= body.get("metadata", {}).get("labels", {})
        return {"metadata": {"resourceVersion": f"v{len(self.applied)}"}}

    async def merge(self, _where: ResourcePath, _body: Object) -> None:
        return None

    async def delete(self, where: ResourcePath, **_options: str) -> None:
        self.deleted.append(f"{where.kind} {where.name}")

    async def pages(
        self, _where: ResourcePath, selection: Mapping[str, str]
    ) -> AsyncIterator[tuple[list[Object], str]]:
        assert "spec.nodeName=" in selection["fieldSelector"]
        yield self.pods, "1"


def keeper(api: Api, *, gone_after_s: float = 0.0) -> VirtualNodes:
    objects = cast("ObjectClient", api)
    service = NodeReadiness(ServingStatus())
    address = KubeletAddress("10.0.0.1", 10250)
    return VirtualNodes(
        objects, NodeApplier(objects), address, service, gone_after_s=gone_after_s, old_keys=False
    )


def wished(*nodes: NodeView) -> list[DesiredNode]:
    """Slurm has `debug`, and nothing else any more."""
    return desired_nodes(followed(partition("debug")), nodes, Overrides(), 20)[0]


GONE = ["Node hpc1.old", "Lease hpc1.old"]


@pytest.mark.parametrize(
    ("pods", "gone_after_s", "deleted"),
    [([], 0.0, GONE), ([], 600.0, []), ([{"metadata": {"name": "job"}}], 0.0, [])],
)
async def test_a_node_goes_when_its_time_has_come_and_no_job_is_left_on_it(
    pods: list[Object], gone_after_s: float, deleted: list[str]
) -> None:
    api, old = Api(pods), node("old")
    await keeper(api, gone_after_s=gone_after_s).reconcile(wished(old), {old.name: old})
    assert api.deleted == deleted


async def test_a_partition_that_is_back_has_its_time_begin_anew() -> None:
    api, old = Api(), node("old")
    nodes = keeper(api, gone_after_s=600.0)
    await nodes.reconcile(wished(old), {old.name: old})
    assert nodes._missing_since
    back = desired_nodes(followed(partition("old")), [old], Overrides(), 20)[0]
    await nodes.reconcile(back, {old.name: old})
    assert not nodes._missing_since


async def test_a_node_of_somebody_else_is_neither_changed_nor_deleted() -> None:
    api = Api()
    theirs = replace(node("old"), labels={}, provider_id="")
    nodes = keeper(api)
    await nodes.reconcile([replace(item, delete=True) for item in wished()], {"hpc1.debug": theirs})
    assert api.deleted == []
    assert api.applied == []
    assert "not ours" in nodes.problems["hpc1.debug"]


@pytest.mark.parametrize("is_listed", [True, False])
async def test_the_labels_by_which_a_node_is_found_come_back(*, is_listed: bool) -> None:
    api, bared = Api(), node("debug", labels={}, annotations={})
    cluster = followed(*([partition("debug")] if is_listed else []), fault="" if is_listed else "away")
    await keeper(api).reconcile(desired_nodes(cluster, [bared], Overrides(), 20)[0], {bared.name: bared})
    found = {key: api.labels.get(f"redbox.dev/{key}") for key in ("virtual", "cluster", "partition")}
    assert found == {"virtual": "true", "cluster": "hpc1", "partition": "debug"}


async def test_a_node_that_an_api_server_refuses_holds_up_no_other() -> None:
    api = Api()
    api.broken_for = "hpc1.a"
    nodes = keeper(api)
    desired = desired_nodes(followed(partition("a"), partition("b")), [], Overrides(), 20)[0]
    await nodes.reconcile(desired, {})
    assert set(api.applied) == {"hpc1.b"}
    assert set(nodes.problems) == {"hpc1.a"}
