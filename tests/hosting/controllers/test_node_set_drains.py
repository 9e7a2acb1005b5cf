"""Drains have owners, both ways: from Kubernetes to Slurm, and from Slurm to Kubernetes."""

from __future__ import annotations

import pytest

from redbox_hosting.api import names
from redbox_hosting.slurm.answers import RestReservation
from redbox_kube.api.objects import Object
from tests.hosting.controllers.node_set_bench import K1, READY_NODE, NodeSetBench

DEADLOCK = {"type": "KernelDeadlock", "status": "True", "reason": "DockerHung", "message": "task blocked"}


def with_conditions(*more: Object) -> Object:
    return {"spec": {}, "status": {"conditions": [*READY_NODE["status"]["conditions"], *more]}}


def draining(it: NodeSetBench, name: str = "w-0") -> Object:
    return it.kubelet.conditions(name).get(names.CONDITION_DRAINING, {})


def drained_workers(it: NodeSetBench, owner: str) -> float | None:
    return it.registry.get_sample_value("redbox_hosting_drained_workers", {"owner": owner})


async def test_a_condition_of_the_kubernetes_node_drains_its_workers_while_it_is_true(
    it: NodeSetBench,
) -> None:
    await it.up(1)
    it.api.put(K1, with_conditions(DEADLOCK))
    await it.has(lambda: "DRAIN" in it.slurm.states["w-0"])
    assert it.slurm.reasons["w-0"] == "red-box: Kubernetes node has KernelDeadlock (DockerHung: task blocked)"
    await it.has(lambda: draining(it).get("reason") == "Operator")
    await it.settled()
    assert it.pod("w-0")["metadata"]["labels"][names.LABEL_PROTECTED] == "true"  # nobody drains the machine
    it.api.put(K1, with_conditions({**DEADLOCK, "status": "False"}))
    await it.has(lambda: "DRAIN" not in it.slurm.states["w-0"])


async def test_a_condition_that_is_not_named_drains_nobody(it: NodeSetBench) -> None:
    await it.up(1)
    it.api.put(K1, with_conditions({**DEADLOCK, "type": "DiskPressure"}))
    await it.settled()
    assert it.slurm.writes == []


@pytest.mark.parametrize(
    ("state", "reason", "owner", "shown"),
    [
        ({"IDLE", "DRAIN"}, "bad disk [root@2026-01-01T00:00:00]", "administrator", "bad disk"),
        ({"DOWN"}, "", "administrator", "DOWN"),
        ({"DOWN", "NOT_RESPONDING"}, "Not responding", "slurm", "Not responding"),
    ],
)
async def test_a_drain_in_slurm_is_a_condition_an_event_and_a_metric(
    it: NodeSetBench, state: set[str], reason: str, owner: str, shown: str
) -> None:
    await it.up(1)
    assert drained_workers(it, owner) == 0
    it.slurm.states["w-0"], it.slurm.reasons["w-0"] = state, reason
    await it.has(lambda: draining(it).get("status") == "True")
    assert (draining(it)["reason"], draining(it)["message"]) == (owner.capitalize(), shown)
    assert drained_workers(it, owner) == 1
    await it.has(lambda: it.event("NodeDraining") == shown)
    it.slurm.states["w-0"] = {"IDLE"}
    await it.has(lambda: draining(it)["status"] == "False")
    assert drained_workers(it, owner) == 0


async def test_a_maintenance_reservation_is_shown_with_its_name(
    it: NodeSetBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await it.up(1)
    held = RestReservation.model_validate({"name": "firmware", "node_list": "w-[0-1]"})

    async def reservations() -> tuple[RestReservation, ...]:
        return (held,)

    monkeypatch.setattr(it.slurm, "reservations", reservations)
    it.slurm.states["w-0"] = {"IDLE", "MAINTENANCE"}
    await it.has(lambda: draining(it).get("status") == "True")
    assert (draining(it)["reason"], draining(it)["message"]) == ("Reservation", "in maintenance: firmware")
    await it.settled()
    assert it.slurm.writes == []
    assert it.condition("Ready")["status"] == "True"
