"""Names, numbers, the order of removal, and records."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.nodeset.observed import PodPhase, WorkerMachine, WorkerPod
from redbox_hosting.nodeset.records import record_decision
from redbox_hosting.nodeset.scaling import (
    SCALE_IN,
    counts,
    deadline_of,
    free_ordinals,
    removal_order,
    scale_plan,
)
from redbox_hosting.slurm.snapshot import SlurmSnapshot
from tests.hosting.nodeset.rows import UNKNOWN, job, node, pod, snapshot


def plan(desired: int, pods: list[WorkerPod], seen_in_slurm: SlurmSnapshot | None = None) -> dict[str, Any]:
    made = scale_plan(desired, pods, idle(pods) if seen_in_slurm is None else seen_in_slurm)
    parts = {
        "create": list(made.create),
        "condemn": [each.ordinal for each in made.condemn],
        "spare": [each.ordinal for each in made.spare],
        "lost": [each.ordinal for each in made.lost],
    }
    return {name: part for name, part in parts.items() if part}


def idle(pods: list[WorkerPod]) -> SlurmSnapshot:
    return snapshot(*(node("IDLE", each.ordinal) for each in pods))


@pytest.mark.parametrize(
    ("taken", "ordinals"),
    [((), (0, 1)), ((0, 1), (2, 3)), ((1,), (0, 2)), ((0, 2, 3), (1, 4)), ((1000,), (0, 1))],
)
def test_the_lowest_free_ordinals_are_taken(taken: tuple[int, ...], ordinals: tuple[int, ...]) -> None:
    assert free_ordinals(2, set(taken)) == ordinals


@pytest.mark.parametrize(
    ("case", "desired", "pods", "expected"),
    [
        ("from nothing", 3, [], {"create": [0, 1, 2]}),
        ("as wanted", 2, [pod(0), pod(1)], {}),
        ("to nothing", 0, [pod(0), pod(1)], {"condemn": [1, 0]}),
        ("a gap", 3, [pod(0), pod(2)], {"create": [1]}),
        ("an ending pod keeps its name", 2, [pod(0), pod(1, is_ending=True)], {"create": [2]}),
        ("one too many", 1, [pod(0), pod(1)], {"condemn": [1]}),
        ("already condemned", 1, [pod(0), pod(1, condemned=SCALE_IN)], {}),
        ("wanted again", 2, [pod(0), pod(1, condemned=SCALE_IN)], {"spare": [1]}),
        (
            "wanted again, and one more",
            3,
            [pod(0), pod(1, condemned=SCALE_IN)],
            {"spare": [1], "create": [2]},
        ),
        (
            "the last to go is spared first",
            2,
            [pod(0), pod(1, condemned=SCALE_IN), pod(2, condemned=SCALE_IN)],
            {"spare": [1]},
        ),
        (
            "the gate has passed: it goes",
            2,
            [pod(0), pod(1, condemned=SCALE_IN, is_protected=False)],
            {"create": [2]},
        ),
        ("an update holds its place", 2, [pod(0), pod(1, condemned="update")], {}),
        ("an update goes first", 1, [pod(0, condemned="update"), pod(1)], {"condemn": [0]}),
        ("a cordoned worker counts", 1, [pod(0, cordon="x")], {}),
        # L9: a replacement under another ordinal, never for a bound claim.
        ("a lost machine", 2, [pod(0), pod(1, machine=WorkerMachine.LOST)], {"create": [2], "lost": [1]}),
        ("a deleted machine", 2, [pod(0), pod(1, machine=WorkerMachine.GONE)], {"create": [2], "lost": [1]}),
        ("a lost machine with a claim", 2, [pod(0), pod(1, machine=WorkerMachine.LOST, has_claim=True)], {}),
        (
            "a pod that PodGC calls failed",
            2,
            [pod(0), pod(1, phase=PodPhase.FAILED)],
            {"create": [2], "lost": [1]},
        ),
        (
            "a pod whose containers have ended",
            2,
            [pod(0), pod(1, phase=PodPhase.FAILED, container_ended=True)],
            {},
        ),
        ("a machine that came back", 2, [pod(0), pod(1), pod(2)], {"condemn": [2]}),
    ],
)
def test_the_plan(case: str, desired: int, pods: list[WorkerPod], expected: dict[str, Any]) -> None:
    assert plan(desired, pods) == expected, case


def test_creation_does_not_need_slurm() -> None:
    assert plan(2, [pod(0)], UNKNOWN) == {"create": [1]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"is_assigned": False}, {"phase": PodPhase.PENDING}),
        ({"phase": PodPhase.PENDING, "is_ready": False}, {"is_ready": False}),
        ({"is_ready": False}, {"deletion_cost": -10}),
        ({"deletion_cost": -1}, {"deletion_cost": 0}),
        ({"deadline": 5.0}, {"deadline": 6.0}),
        ({"deadline": 5.0}, {}),
        ({"cordon": "x"}, {}),
        ({"machine": WorkerMachine.CORDONED}, {}),
        ({"machine": WorkerMachine.FAULTY}, {}),
    ],
)
def test_the_order_of_removal(first: dict[str, Any], second: dict[str, Any]) -> None:
    """The one that goes first has the lower ordinal and is older, which alone would keep it."""
    pods = [pod(1, **second), pod(0, **first)]
    assert [each.ordinal for each in removal_order(pods, idle(pods))] == [0, 1]


def test_an_idle_worker_goes_before_a_busy_one_and_the_cost_before_both() -> None:
    pods = [pod(0), pod(1)]
    busy = snapshot(node("IDLE", 0), node("MIXED", 1))
    assert [each.ordinal for each in removal_order(pods, busy)] == [0, 1]
    allocation = snapshot(node("IDLE", 0), node("IDLE", 1), job(nodes="w-1"))
    assert [each.ordinal for each in removal_order(pods, allocation)] == [0, 1]
    dear = [pod(0, deletion_cost=1), pod(1)]
    assert [each.ordinal for each in removal_order(dear, busy)] == [1, 0]


def test_of_equal_workers_the_higher_ordinal_and_then_the_newer_goes() -> None:
    pods = [pod(0), pod(2), pod(10)]
    assert [each.ordinal for each in removal_order(pods, idle(pods))] == [10, 2, 0]
    same = [pod(0, created=1.0), pod(0, created=2.0)]
    assert [each.created for each in removal_order(same, idle(same))] == [2.0, 1.0]


def test_a_worker_that_slurm_does_not_know_is_no_idle_one() -> None:
    pods = [pod(0), pod(1)]
    partly = snapshot(node("IDLE", 0))
    assert [each.ordinal for each in removal_order(pods, partly)] == [0, 1]


def test_a_deadline_is_the_end_of_the_last_job_unless_somebody_set_it() -> None:
    jobs = snapshot(
        job(1, end_time=50), job(2, end_time=70), job(3, nodes="w-1"), job(4, nodes="w-2", end_time=9)
    )
    made = [deadline_of(each, jobs) for each in (pod(0), pod(1), pod(2, deadline=1.0), pod(3))]
    assert made == [70.0, None, 1.0, None]


@pytest.mark.parametrize(
    ("row", "is_counted"),
    [
        ({}, True),
        ({"is_ready": False}, True),
        ({"is_ending": True}, False),
        ({"condemned": SCALE_IN}, False),
        ({"condemned": "update"}, False),
        ({"machine": WorkerMachine.LOST}, False),
        ({"cordon": "x"}, True),
    ],
)
def test_replicas_are_workers_that_neither_end_nor_are_to_go(row: dict[str, Any], is_counted: bool) -> None:  # noqa: FBT001
    assert counts(pod(**row)) is is_counted


@pytest.mark.parametrize(
    ("case", "pods", "seen_in_slurm", "kept_because"),
    [
        ("its pod is gone", [], snapshot(node("DOWN", reason="Not responding")), ""),
        ("drained by us", [], snapshot(node("IDLE+DRAIN", reason="red-box: scale-in")), ""),
        ("another pod", ["w-1"], snapshot(node()), ""),
        # L7: pod first, then the record.
        ("its pod is there", ["w-0"], snapshot(node()), "its pod is there"),
        ("a job", [], snapshot(node("DOWN"), job()), "job 7 is on it"),
        (
            "a pending job names it",
            [],
            snapshot(node(), job(state="PENDING", nodes="", required_nodes="w-[0-1]")),
            "pending job 7 asks for it by name",
        ),
        ("an ended job named it", [], snapshot(node(), job(state="COMPLETED", required_nodes="w-0")), ""),
        (
            "an administrator's drain",
            [],
            snapshot(node("IDLE+DRAIN", reason="disk")),
            "drained by an administrator: disk",
        ),
        ("no record", [], snapshot(), "Slurm has no record of it"),
        ("no answer", [], UNKNOWN, f"Slurm's state is unknown: {UNKNOWN.unknown}"),
    ],
)
def test_a_record_outlives_its_pod_while_something_needs_it(
    case: str, pods: list[str], seen_in_slurm: SlurmSnapshot, kept_because: str
) -> None:
    decision = record_decision("w-0", pods, seen_in_slurm)
    assert (decision.delete, decision.reason) == (not kept_because, kept_because), case


def test_a_reservation_keeps_a_record() -> None:
    from redbox_hosting.slurm.answers import RestReservation  # noqa: PLC0415

    held = RestReservation.model_validate({"name": "maint", "node_list": "w-[0-3]"})
    decision = record_decision("w-0", [], snapshot(node(), reservations=(held,)))
    assert decision.reason == "reservation maint holds it"
