"""When a virtual node is made, left alone and deleted, by a scripted API server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redbox_kube.api.objects import ApiUnreachable, ResourcePath
from redbox_kube.names import LABEL_JOB_UID
from redbox_resourced.nodes.desired import DesiredNode, desired_nodes
from redbox_resourced.nodes.manifest import KubeletAddress, ServingStatus, new_node
from redbox_resourced.nodes.node_view import NodeView, read_node
from redbox_resourced.nodes.server_side_apply import NodeApplier
from redbox_resourced.nodes.virtual_nodes import VirtualNodes
from redbox_resourced.partitions.overrides import Overrides
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import followed, partition


def stored_node(api: FakeApiServer, partition_name: str, **metadata: Any) -> NodeView:
    body = new_node("hpc1", partition_name)
    body["metadata"] |= metadata
    return read_node(api.put(ResourcePath("Node", body["metadata"]["name"]), body))


def deleted(api: FakeApiServer) -> list[str]:
    return [f"{where.kind} {where.name}" for verb, where in api.requests if verb == "delete"]


def applied(api: FakeApiServer) -> set[str]:
    return {where.name for where, *_ in api.applied}


def keeper(api: FakeApiServer, *, gone_after_s: float = 0.0) -> VirtualNodes:
    objects = api.client
    address = KubeletAddress("10.0.0.1", 10250)
    return VirtualNodes(
        objects, NodeApplier(objects), address, ServingStatus, gone_after_s=gone_after_s, old_keys=False
    )


def wished(*nodes: NodeView) -> list[DesiredNode]:
    """Slurm has `debug`, and nothing else any more."""
    return desired_nodes(followed(partition("debug")), nodes, Overrides(), 20)[0]


GONE = ["Node hpc1.old", "Lease hpc1.old"]


@pytest.mark.parametrize(
    ("has_job", "gone_after_s", "gone"),
    [(False, 0.0, GONE), (False, 600.0, []), (True, 0.0, [])],
)
async def test_a_node_goes_when_its_time_has_come_and_no_job_is_left_on_it(
    *, has_job: bool, gone_after_s: float, gone: list[str]
) -> None:
    api = FakeApiServer()
    old = stored_node(api, "old")
    pod = {"metadata": {"labels": {LABEL_JOB_UID: "u"}}, "spec": {"nodeName": old.name}}
    if has_job:
        api.put(ResourcePath("Pod", "cow-job", "alice"), pod)
    await keeper(api, gone_after_s=gone_after_s).reconcile(wished(old), {old.name: old})
    assert deleted(api) == gone
    assert api.names("Node") == (["hpc1.debug"] if gone else ["hpc1.debug", "hpc1.old"])


async def test_a_partition_that_is_back_has_its_time_begin_anew() -> None:
    api = FakeApiServer()
    old = stored_node(api, "old")
    nodes = keeper(api, gone_after_s=600.0)
    await nodes.reconcile(wished(old), {old.name: old})
    assert nodes._missing_since
    back = desired_nodes(followed(partition("old")), [old], Overrides(), 20)[0]
    await nodes.reconcile(back, {old.name: old})
    assert not nodes._missing_since


async def test_a_node_of_somebody_else_is_neither_changed_nor_deleted() -> None:
    api = FakeApiServer()
    theirs = replace(stored_node(api, "debug"), labels={}, provider_id="")
    nodes = keeper(api)
    await nodes.reconcile([replace(item, delete=True) for item in wished()], {"hpc1.debug": theirs})
    assert api.writes == 0
    assert "not ours" in nodes.warnings.failing["hpc1.debug"]


@pytest.mark.parametrize("is_listed", [True, False])
async def test_the_labels_by_which_a_node_is_found_come_back(*, is_listed: bool) -> None:
    api = FakeApiServer()
    bared = stored_node(api, "debug", labels={}, annotations={})
    cluster = followed(*([partition("debug")] if is_listed else []), fault="" if is_listed else "away")
    await keeper(api).reconcile(desired_nodes(cluster, [bared], Overrides(), 20)[0], {bared.name: bared})
    labels = api.objects[ResourcePath("Node", bared.name)]["metadata"]["labels"]
    found = {key: labels.get(f"redbox.dev/{key}") for key in ("virtual", "cluster", "partition")}
    assert found == {"virtual": "true", "cluster": "hpc1", "partition": "debug"}


async def test_a_node_that_an_api_server_refuses_holds_up_no_other() -> None:
    api = FakeApiServer()
    api.fail(ApiUnreachable("the API server does not answer"), verb="apply", name="hpc1.a")
    nodes = keeper(api)
    desired = desired_nodes(followed(partition("a"), partition("b")), [], Overrides(), 20)[0]
    await nodes.reconcile(desired, {})
    assert applied(api) == {"hpc1.b"}
    assert set(nodes.warnings.failing) == {"hpc1.a"}
