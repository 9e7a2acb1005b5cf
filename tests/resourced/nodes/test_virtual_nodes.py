"""When a virtual node is made, left alone and deleted, by a scripted API server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redbox_api.models import Amounts
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiUnreachable, ResourcePath
from redbox_resourced.nodes.desired import DesiredNode, desired_nodes
from redbox_resourced.nodes.manifest import KubeletAddress, ServingStatus, new_node
from redbox_resourced.nodes.node_view import NodeView, read_node
from redbox_resourced.nodes.server_side_apply import NodeApplier
from redbox_resourced.nodes.virtual_nodes import VirtualNodes
from redbox_resourced.partitions.overrides import Overrides
from redbox_resourced.pods.pod_view import has_job
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import followed, partition


def stored_node(api: FakeApiServer, partition_name: str, **metadata: Any) -> NodeView:
    body = new_node("hpc1", partition_name)
    body["metadata"] |= metadata
    return read_node(api.put(ResourcePath(kinds.NODE, body["metadata"]["name"]), body))


def deleted(api: FakeApiServer) -> list[str]:
    return [f"{where.kind} {where.name}" for verb, where in api.requests if verb == "delete"]


def applied(api: FakeApiServer) -> set[str]:
    return {where.name for where, *_ in api.applied}


def keeper(api: FakeApiServer, *, gone_after_s: float = 0.0) -> VirtualNodes:
    objects = api.client
    address = KubeletAddress("10.0.0.1", 10250)
    return VirtualNodes(
        objects,
        NodeApplier(objects),
        address,
        ServingStatus,
        has_job,
        gone_after_s=gone_after_s,
        old_keys=False,
    )


def desired_of(*nodes: NodeView) -> list[DesiredNode]:
    """Slurm has `debug`, and nothing else any more."""
    return desired_nodes(followed(partition("debug")), nodes, Overrides(), 20)[0]


def bind_pod(
    api: FakeApiServer, node: str, spec: dict[str, Any], *, owner: str = "", phase: str = "Running"
) -> None:
    version = "redbox.dev/v1alpha1" if owner == "SlurmJob" else "apps/v1"
    controller = {"apiVersion": version, "kind": owner, "name": "o", "uid": "v", "controller": True}
    body = {
        "metadata": {
            "creationTimestamp": "2026-11-21T13:00:00Z",
            "ownerReferences": [controller] if owner else [],
        },
        "spec": {"nodeName": node, "containers": [{"name": "main"}]} | spec,
        "status": {"phase": phase},
    }
    api.put(ResourcePath(kinds.POD, "p", "alice"), body)


def capacity_of(api: FakeApiServer, node: str) -> tuple[dict[str, str], dict[str, str]]:
    """Capacity, and what is allocatable."""
    status = api.objects[ResourcePath(kinds.NODE, node)]["status"]
    return status["capacity"], status["allocatable"]


GONE = ["Node hpc1.old", "Lease hpc1.old"]
NAMES_TAINT = {"tolerations": [{"key": "redbox.dev/slurm", "operator": "Exists"}]}
BLANKET = {"tolerations": [{"operator": "Exists"}]}


@pytest.mark.parametrize(
    ("pod", "gone_after_s", "gone"),
    [
        (None, 0.0, GONE),
        (None, 600.0, []),
        ({"spec": {}, "owner": "SlurmJob"}, 0.0, []),
        ({"spec": NAMES_TAINT, "owner": "ReplicaSet"}, 0.0, []),
        ({"spec": NAMES_TAINT, "phase": "Pending"}, 0.0, []),
        ({"spec": NAMES_TAINT, "phase": "Succeeded"}, 0.0, GONE),
        ({"spec": NAMES_TAINT, "owner": "DaemonSet"}, 0.0, GONE),
        ({"spec": BLANKET}, 0.0, GONE),
    ],
)
async def test_a_node_goes_when_its_time_has_come_and_no_job_is_left_on_it(
    *, pod: dict[str, Any] | None, gone_after_s: float, gone: list[str]
) -> None:
    api = FakeApiServer()
    old = stored_node(api, "old")
    if pod is not None:
        bind_pod(api, old.name, **pod)
    await keeper(api, gone_after_s=gone_after_s).reconcile(desired_of(old), {old.name: old})
    assert deleted(api) == gone
    assert api.names("Node") == (["hpc1.debug"] if gone else ["hpc1.debug", "hpc1.old"])


async def test_a_partition_that_is_back_has_its_time_begin_anew() -> None:
    api = FakeApiServer()
    old = stored_node(api, "old")
    nodes = keeper(api, gone_after_s=600.0)
    await nodes.reconcile(desired_of(old), {old.name: old})
    assert nodes._missing_since
    back = desired_nodes(followed(partition("old")), [old], Overrides(), 20)[0]
    await nodes.reconcile(back, {old.name: old})
    assert not nodes._missing_since


async def test_a_node_of_somebody_else_is_neither_changed_nor_deleted() -> None:
    api = FakeApiServer()
    theirs = replace(stored_node(api, "debug"), labels={}, provider_id="")
    nodes = keeper(api)
    await nodes.reconcile([replace(item, delete=True) for item in desired_of()], {"hpc1.debug": theirs})
    assert api.writes == 0
    assert "not ours" in nodes.warnings.failing["hpc1.debug"]


@pytest.mark.parametrize("is_listed", [True, False])
async def test_the_labels_by_which_a_node_is_found_come_back(*, is_listed: bool) -> None:
    api = FakeApiServer()
    bared = stored_node(api, "debug", labels={}, annotations={})
    cluster = followed(*([partition("debug")] if is_listed else []), fault="" if is_listed else "away")
    await keeper(api).reconcile(desired_nodes(cluster, [bared], Overrides(), 20)[0], {bared.name: bared})
    labels = api.objects[ResourcePath(kinds.NODE, bared.name)]["metadata"]["labels"]
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


@pytest.mark.parametrize("has_pod", [True, False])
async def test_a_node_deleted_by_hand_is_back_while_a_pod_needs_it(*, has_pod: bool) -> None:
    """Its partition is gone from Slurm: only the pod is a reason to have the Node."""
    api = FakeApiServer()
    old = stored_node(api, "old")
    if has_pod:
        bind_pod(api, old.name, NAMES_TAINT)
    nodes = keeper(api, gone_after_s=600.0)
    await nodes.reconcile(desired_of(old), {old.name: old})
    api.remove(ResourcePath(kinds.NODE, old.name))
    await nodes.reconcile(desired_of(*nodes.existing.values()), {})
    assert (old.name in api.names("Node")) is has_pod
    assert (old.name in nodes.existing) is has_pod


async def test_a_node_deleted_by_hand_is_back_with_its_taint_also_while_red_box_is_away() -> None:
    api = FakeApiServer()
    debug = stored_node(api, "debug")
    bind_pod(api, debug.name, NAMES_TAINT)
    away = followed(fault="away")
    nodes = keeper(api)
    await nodes.reconcile(desired_nodes(away, [debug], Overrides(), 20)[0], {debug.name: debug})
    api.remove(ResourcePath(kinds.NODE, debug.name))
    await nodes.reconcile(desired_nodes(away, nodes.existing.values(), Overrides(), 20)[0], {})
    taints = api.objects[ResourcePath(kinds.NODE, debug.name)]["spec"]["taints"]
    assert "redbox.dev/slurm" in {taint["key"] for taint in taints}


async def test_a_node_that_we_deleted_stays_deleted() -> None:
    api = FakeApiServer()
    old = stored_node(api, "old")
    nodes = keeper(api)
    await nodes.reconcile(desired_of(old), {old.name: old})
    assert deleted(api) == GONE
    await nodes.reconcile(desired_of(*nodes.existing.values()), {})
    assert api.names("Node") == ["hpc1.debug"]


async def test_with_pods_there_is_room_for_any_number_and_the_capacity_stays_true() -> None:
    api = FakeApiServer()
    some = Amounts(nodes=2, cpus=8, mem_mb=8000, gpus=4)
    cluster = followed(partition("debug", total=some), pods={"enabled": True})
    await keeper(api).reconcile(desired_nodes(cluster, [], Overrides(), 20)[0], {})
    capacity, allocatable = capacity_of(api, "hpc1.debug")
    assert (capacity["cpu"], capacity["memory"]) == ("8", "8000Mi")
    assert capacity["debug.hpc1.redbox.dev/gpus"] == "4"
    assert int(allocatable["cpu"]) > 10**6
    for name in ("debug.hpc1.redbox.dev/gpus", "debug.hpc1.redbox.dev/cpus", "nvidia.com/gpu", "amd.com/gpu"):
        assert int(allocatable[name]) > 10**6, name
    assert {"memory", "ephemeral-storage", "pods"} <= allocatable.keys()
    assert "nvidia.com/gpu" not in capacity


async def test_a_pod_that_wants_a_gpu_has_no_room_where_the_partition_has_none() -> None:
    api = FakeApiServer()
    cluster = followed(partition("debug"), pods={"enabled": True})
    await keeper(api).reconcile(desired_nodes(cluster, [], Overrides(), 20)[0], {})
    _, allocatable = capacity_of(api, "hpc1.debug")
    assert not {"nvidia.com/gpu", "amd.com/gpu", "debug.hpc1.redbox.dev/gpus"} & allocatable.keys()


@pytest.mark.parametrize("spec", [{}, {"pods": {"enabled": True}, "holdBack": True}])
async def test_without_pods_or_with_hold_back_the_allocatable_is_the_capacity(spec: dict[str, Any]) -> None:
    api = FakeApiServer()
    await keeper(api).reconcile(desired_nodes(followed(partition("d"), **spec), [], Overrides(), 20)[0], {})
    capacity, allocatable = capacity_of(api, "hpc1.d")
    assert allocatable == capacity


def test_with_pods_there_are_virtual_nodes_also_where_slurmjobs_have_containers() -> None:
    cluster = followed(partition("debug"), delivery="Container", pods={"enabled": True})
    desired, _ = desired_nodes(cluster, [], Overrides(), 20)
    assert [(item.node, item.delete) for item in desired] == [("hpc1.debug", False)]
