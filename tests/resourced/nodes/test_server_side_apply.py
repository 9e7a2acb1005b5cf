"""What is said of a node is said once, and again when somebody else was there; how a virtual node looks."""

from __future__ import annotations

from typing import Any, cast

import pytest

from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, ResourcePath
from redbox_resourced.nodes.manifest import (
    KubeletAddress,
    ServingStatus,
    availability_configurations,
    serving_configurations,
    taints,
)
from redbox_resourced.nodes.node_view import NodeView, managed_node, read_node
from redbox_resourced.nodes.server_side_apply import ApplyConfiguration, NodeApplier, withdrawal
from redbox_resourced.partitions.availability import deleted_in_slurm
from tests.resourced.factories import node

NOW = "2026-01-01T00:00:00Z"
SLURM = {"key": "redbox.dev/slurm", "effect": "NoSchedule"}
UNREACHABLE = {"key": "redbox.dev/unreachable", "effect": "NoSchedule"}
OTHERS = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": NOW}


class Applies:
    """Takes what is applied; each makes a new version of the node."""

    def __init__(self) -> None:
        self.applied: list[tuple[str, str, Object]] = []

    async def apply(
        self, where: ResourcePath, body: Object, *, field_manager: str, subresource: str
    ) -> Object:
        self.applied.append((field_manager, subresource, body))
        return {"metadata": {"name": where.name, "resourceVersion": f"own-{len(self.applied)}"}}


def seen(version: str, uid: str = "u") -> NodeView:
    return node("debug", resourceVersion=version, uid=uid)


def claim(**labels: str) -> ApplyConfiguration:
    return ApplyConfiguration("m", {"metadata": {"labels": labels}})


async def kept(*steps: tuple[NodeView, ApplyConfiguration]) -> Applies:
    objects = Applies()
    applier = NodeApplier(cast("ObjectClient", objects))
    for node_view, configuration in steps:
        await applier.apply(node_view, [configuration])
    return objects


async def test_what_was_said_is_not_said_again() -> None:
    objects = await kept((seen("1"), claim(a="1")), (seen("1"), claim(a="1")), (seen("own-1"), claim(a="1")))
    assert len(objects.applied) == 1


async def test_what_changed_is_said() -> None:
    objects = await kept((seen("1"), claim(a="1")), (seen("own-1"), claim(a="2")))
    assert [body["metadata"]["labels"] for _, _, body in objects.applied] == [{"a": "1"}, {"a": "2"}]


async def test_after_somebody_elses_change_it_is_said_again() -> None:
    objects = await kept((seen("1"), claim(a="1")), (seen("kubelet-7"), claim(a="1")))
    assert len(objects.applied) == 2


async def test_texts_of_a_node_become_printable() -> None:
    objects = await kept((seen("1"), claim(a="\x1b[2J")))
    ((_, _, body),) = objects.applied
    assert body["metadata"]["labels"] == {"a": "?[2J"}


class Versioned(Applies):
    """Refuses what was said of another version than the newest."""

    version = "1"

    async def apply(
        self, where: ResourcePath, body: Object, *, field_manager: str, subresource: str
    ) -> Object:
        if body["metadata"].get("resourceVersion", self.version) != self.version:
            raise ApiRefused(409, "the object has been modified")
        answer = await super().apply(where, body, field_manager=field_manager, subresource=subresource)
        self.version = answer["metadata"]["resourceVersion"]
        return answer


class Contended(Versioned):
    """Somebody else changes the node right after our first word."""

    async def apply(
        self, where: ResourcePath, body: Object, *, field_manager: str, subresource: str
    ) -> Object:
        answer = await super().apply(where, body, field_manager=field_manager, subresource=subresource)
        if len(self.applied) == 1:
            self.version = "kubelet-7"
        return answer


async def test_somebody_elses_change_between_two_of_ours_is_not_taken_for_ours() -> None:
    objects = Contended()
    applier = NodeApplier(cast("ObjectClient", objects))
    configurations = [
        ApplyConfiguration("m", {"metadata": {"labels": {"a": "1"}}}),
        ApplyConfiguration("n", {"status": {}}, "status"),
    ]
    for _ in range(3):
        await applier.apply(seen(objects.version), configurations)
    assert [manager for manager, _, _ in objects.applied] == ["m", "m", "n"]


async def test_a_watch_that_lags_behind_many_changes_of_ours_holds_nothing_up() -> None:
    objects = Versioned()
    applier = NodeApplier(cast("ObjectClient", objects))
    for number in range(40):
        await applier.apply(seen("1"), [claim(a=str(number))])
    for _ in range(2):
        await applier.apply(seen(objects.version), [claim(a="last")])
    assert objects.applied[-1][2]["metadata"]["labels"] == {"a": "last"}


async def test_of_a_node_made_anew_everything_is_said() -> None:
    objects = await kept((seen("1"), claim(a="1")), (seen("own-1", uid="other"), claim(a="1")))
    assert [body["metadata"]["uid"] for _, _, body in objects.applied] == ["u", "other"]


def test_taints_of_others_stay_and_ours_are_as_they_should_be() -> None:
    assert taints((OTHERS,), unreachable=True) == [OTHERS, SLURM, UNREACHABLE]
    assert taints((SLURM, UNREACHABLE, OTHERS), unreachable=False) == [OTHERS, SLURM]


def conditions(claims: list[ApplyConfiguration]) -> dict[str, dict[str, Any]]:
    found = [condition for claim in claims for condition in claim.body.get("status", {})["conditions"]]
    return {condition["type"]: condition for condition in found}


def test_ready_is_that_it_is_served_and_nothing_else() -> None:
    address = KubeletAddress("10.0.0.1", 10250)
    away = conditions(serving_configurations(seen("1"), ServingStatus(), "no answer", address, NOW))
    assert (away["Ready"]["status"], away["RedBoxReachable"]["status"]) == ("True", "False")
    broken = conditions(serving_configurations(seen("1"), ServingStatus("no certificate"), "", address, NOW))
    assert (broken["Ready"]["status"], broken["Ready"]["message"]) == ("False", "no certificate")


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    before = node("debug")
    since = "2025-01-01T00:00:00Z"
    node_view = NodeView(
        **{**vars(before), "conditions": {"Ready": ("True", since), "RedBoxReachable": ("False", since)}}
    )
    now = conditions(
        serving_configurations(node_view, ServingStatus(), "", KubeletAddress("10.0.0.1", 10250), NOW)
    )
    assert now["Ready"]["lastTransitionTime"] == since
    assert now["RedBoxReachable"]["lastTransitionTime"] == NOW


def test_a_node_says_why_before_it_is_cordoned() -> None:
    claims = availability_configurations(seen("1"), deleted_in_slurm("debug"), NOW)
    assert [claim.subresource for claim in claims] == ["status", ""]
    assert claims[1].body == {"spec": {"providerID": "redbox://hpc1/debug", "unschedulable": True}}


MANAGED = [
    {
        "manager": "redbox-resourced.gateway.hpc1",
        "operation": "Apply",
        "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}, "f:annotations": {"f:b": {}}}},
    },
    {
        "manager": "redbox-resourced.gateway.hpc1",
        "operation": "Apply",
        "subresource": "status",
        "fieldsV1": {"f:status": {"f:capacity": {"f:c": {}}, "f:allocatable": {"f:c": {}}}},
    },
    {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:os": {}}}}},
    {"manager": "redbox-resourced", "operation": "Update", "fieldsV1": {}},
]


def test_what_is_withdrawn_is_what_the_manager_owns_and_nothing_else() -> None:
    manager = "redbox-resourced.gateway.hpc1"
    metadata = {"name": "k1", "uid": "u", "resourceVersion": "1", "managedFields": MANAGED}
    gateway = read_node({"metadata": metadata})
    assert set(gateway.owned) == {manager}
    assert [(claim.subresource, claim.body) for claim in withdrawal(gateway, manager)] == [
        ("", {"metadata": {"labels": {"a": None}, "annotations": {"b": None}}}),
        ("status", {"status": {"capacity": {"c": None}, "allocatable": {"c": None}}}),
    ]


@pytest.mark.parametrize(
    ("metadata", "provider_id", "is_kept"),
    [
        ({"labels": {"redbox.dev/gateway.hpc1": "true"}}, "", True),
        ({"labels": {"redbox.dev/virtual": "true"}}, "redbox://hpc1/debug", True),
        ({}, "redbox://hpc1/debug", True),
        ({"managedFields": [{"operation": "Update", "fieldsV1": {}}]}, "redbox://hpc1/debug", True),
        ({"labels": {"redbox.dev/virtual": "true"}}, "", False),
        ({"managedFields": MANAGED[:1]}, "", True),
        ({"managedFields": MANAGED[2:], "labels": {"os": "linux"}}, "cloud://1", False),
    ],
)
def test_only_nodes_that_we_have_to_do_with_are_kept(
    metadata: dict[str, Any], provider_id: str, *, is_kept: bool
) -> None:
    metadata = {"name": "n", "uid": "u", "resourceVersion": "1", **metadata}
    node_view = managed_node({"metadata": metadata, "spec": {"providerID": provider_id}})
    assert (node_view is not None) == is_kept
