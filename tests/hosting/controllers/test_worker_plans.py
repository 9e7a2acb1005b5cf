"""Which workers are made, and which are to go, for each state of a NodeSet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redbox_hosting.controllers.workers.plans import (
    DELETED,
    FORCED,
    HAS_FAILED,
    MACHINE_OFF,
    UPDATE,
    acts_of,
    deletion_plan,
    max_unavailable,
    workers_plan,
)
from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.nodeset.observed import PodPhase, WorkerMachine
from redbox_hosting.nodeset.scaling import SCALE_IN
from redbox_hosting.nodeset.wanted import NodeVerb
from tests.hosting.factories import NEW, node_set, worker
from tests.hosting.nodeset.rows import NOW, UNKNOWN, job, node, snapshot

OLD = "old"


def planned(workers: list[WorkerView], **spec: Any) -> tuple[list[int], dict[str, str]]:
    given: dict[str, Any] = {"replicas": 4, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}} | spec
    seen = snapshot(*(node("IDLE", view.pod.ordinal) for view in workers), job(nodes="w-3"))
    plan = workers_plan(node_set(**given).spec, workers, seen, NEW, NOW)
    return list(plan.create), dict(plan.condemned)


OFF, GONE, LOST = WorkerMachine.OFF, WorkerMachine.GONE, WorkerMachine.LOST
EVICTED: dict[str, Any] = {"phase": PodPhase.FAILED, "container_ended": True}
THREE = [worker(0), worker(1), worker(2)]


@pytest.mark.parametrize(
    ("case", "workers", "create", "condemned"),
    [
        ("as wanted", [*THREE, worker(3)], [], {}),
        # Whatever the number is.
        ("forced", [*THREE, worker(3, force_delete="x")], [], {"w-3": FORCED}),
        ("forced and condemned", [*THREE, worker(3, force_delete="x", condemned="y")], [], {}),
        ("forced, ending", [*THREE, worker(3, force_delete="x", is_ending=True)], [4], {}),
        ("no more forced", [*THREE, worker(3, condemned=FORCED)], [], {"w-3": ""}),
        (
            "no more forced, the gate has passed",
            [*THREE, worker(3, condemned=FORCED, is_protected=False)],
            [],
            {},
        ),
        ("its machine is off", [*THREE, worker(3, machine=OFF)], [4], {"w-3": MACHINE_OFF}),
        ("its Node is deleted", [*THREE, worker(3, machine=GONE)], [4], {"w-3": MACHINE_OFF}),
        ("its machine is lost", [*THREE, worker(3, machine=LOST)], [4], {}),
        ("off, with a claim", [*THREE, worker(3, machine=OFF, has_claim=True)], [], {"w-3": MACHINE_OFF}),
        (
            "off, with a claim, ending",
            [*THREE, worker(3, machine=OFF, has_claim=True, condemned=MACHINE_OFF, is_ending=True)],
            [],
            {},
        ),
        ("its machine is back", [*THREE, worker(3, condemned=MACHINE_OFF)], [], {"w-3": ""}),
        (
            "evicted",
            [*THREE, worker(3, phase=PodPhase.FAILED, container_ended=True)],
            [],
            {"w-3": HAS_FAILED},
        ),
        ("collected", [*THREE, worker(3, phase=PodPhase.FAILED)], [4], {"w-3": HAS_FAILED}),
        ("a user's reason stays", [*THREE, worker(3, condemned="bad fan")], [], {}),
        # Update: the idle first, two at once.
        (
            "one of the new is there",
            [worker(0), *(worker(n, OLD) for n in (1, 2, 3))],
            [],
            {"w-2": UPDATE, "w-1": UPDATE},
        ),
        ("none of the new is there", [worker(n, OLD) for n in range(4)], [], {"w-2": UPDATE}),
        (
            "the first new one does not start",
            [worker(0, is_ready=False, was_ready=False), *(worker(n, OLD) for n in (1, 2, 3))],
            [],
            {},
        ),
        (
            "the first one still goes",
            [worker(0, OLD, condemned=UPDATE), *(worker(n, OLD) for n in (1, 2, 3))],
            [],
            {},
        ),
        ("the first one is gone, and its replacement not made", [worker(n, OLD) for n in (1, 2, 3)], [0], {}),
        (
            "two are missing",
            [
                worker(0),
                worker(1, is_ready=False),
                worker(2, OLD, is_ready=False),
                worker(3, OLD),
            ],
            [],
            {"w-2": UPDATE},
        ),
        (
            "the old never started",
            [worker(n, OLD, is_ready=False, was_ready=False) for n in range(4)],
            [],
            {f"w-{n}": UPDATE for n in range(4)},
        ),
        ("updated already", [*THREE, worker(3, condemned=UPDATE)], [], {"w-3": ""}),
        # Its replacement has its name, so it waits for the end.
        ("updated, ending", [*THREE, worker(3, OLD, condemned=UPDATE, is_ending=True)], [], {}),
        ("scaled in, ending", [*THREE, worker(3, condemned=SCALE_IN, is_ending=True)], [4], {}),
        (
            "more than wanted, and one updated that ends",
            [*THREE, worker(3), worker(4, OLD, condemned=UPDATE, is_ending=True)],
            [],
            {},
        ),
    ],
)
def test_the_plan(case: str, workers: list[WorkerView], create: list[int], condemned: dict[str, str]) -> None:
    assert planned(workers) == (create, condemned), case


def old(number: int, **more: Any) -> WorkerView:
    return worker(number, OLD, **more)


UNREADY: dict[str, Any] = {"is_ready": False}
BUSY = [node("ALLOCATED+DRAIN"), job()]


@pytest.mark.parametrize(
    ("case", "limit", "workers", "create", "condemned"),
    [
        ("half of four", "50%", [worker(0), old(1), old(2), old(3)], [], ["w-1", "w-2"]),
        ("a percentage is rounded down", "49%", [worker(0), old(1), old(2), old(3)], [], ["w-2"]),
        ("one at least", "1%", [worker(0), old(1), old(2), old(3)], [], ["w-2"]),
        (
            "one that ends counts as missing",
            2,
            [worker(0), old(1), old(2), old(3, condemned=UPDATE, is_ending=True)],
            [],
            ["w-2"],
        ),
        (
            "one that is condemned for the update counts as missing",
            1,
            [worker(0), old(1), old(2), old(3, condemned=UPDATE)],
            [],
            [],
        ),
        (
            "what is left of a scale-in counts for nothing",
            1,
            [worker(0), old(1), old(2), worker(3), old(4, condemned=SCALE_IN)],
            [],
            ["w-2"],
        ),
        ("a new one that is not ready", 1, [worker(0, **UNREADY), worker(1), old(2), old(3)], [], []),
        (
            "an old one that is not ready, and no more may be missing",
            1,
            [worker(0), old(1), old(2), old(3, **UNREADY)],
            [],
            ["w-3"],
        ),
        (
            "an old one that is not ready, and a new one",
            1,
            [worker(0, **UNREADY), worker(1), old(2), old(3, **UNREADY)],
            [],
            [],
        ),
        ("one old, busy", 1, [*THREE, old(3)], [], ["w-3"]),
        ("all new", 4, [*THREE, worker(3)], [], []),
    ],
)
def test_how_an_update_goes_on(
    case: str, limit: int | str, workers: list[WorkerView], create: list[int], condemned: list[str]
) -> None:
    strategy = {"rollingUpdate": {"maxUnavailable": limit}}
    made, chosen = planned(workers, updateStrategy=strategy)
    assert (made, sorted(chosen)) == (create, condemned), case
    assert set(chosen.values()) <= {UPDATE}, case


@pytest.mark.parametrize(
    ("case", "row", "since", "timeout", "seen_in_slurm", "verb"),
    [
        ("its time is over", {}, NOW - 60, 60, BUSY, NodeVerb.DOWN),
        ("at once", {}, NOW, 0, BUSY, NodeVerb.DOWN),
        ("it still waits", {}, NOW - 59, 60, BUSY, None),
        ("no timeout", {}, NOW - 10**6, None, BUSY, None),
        ("not since when", {}, None, 60, BUSY, None),
        ("no job", {}, NOW - 60, 60, [node("IDLE+DRAIN")], None),
        ("down already", {}, NOW - 60, 60, [node("DOWN+DRAIN"), job()], None),
        ("it ends", {"is_ending": True}, NOW - 60, 60, BUSY, None),
        ("stays after all", {"condemned": ""}, NOW - 60, 60, [node("ALLOCATED"), job()], None),
        (
            "drained first",
            {"drain_confirmed": None},
            NOW - 60,
            60,
            [node("ALLOCATED"), job()],
            NodeVerb.DRAIN,
        ),
        (
            "another pod's",
            {},
            NOW - 60,
            60,
            [node("ALLOCATED+DRAIN", instance_id="x"), job()],
            None,
        ),
    ],
)
def test_jobs_are_requeued_after_the_drain_timeout(  # noqa: PLR0917 (a table)
    case: str,
    row: dict[str, Any],
    since: float | None,
    timeout: int | None,
    seen_in_slurm: list[Any],
    verb: NodeVerb | None,
) -> None:
    given = {"condemned": "scale-in", "drain_confirmed": NOW - 1, **row}
    view = replace(worker(0, **given), condemned_at=since)
    act = acts_of([view], snapshot(*seen_in_slurm), timeout, NOW)["w-0"]
    assert act.verb is verb, case
    if verb is NodeVerb.DOWN:
        assert act.reason == "red-box: scale-in, and drainTimeout is over"


def test_an_unknown_slurm_is_not_told_to_requeue() -> None:
    view = replace(worker(0, condemned="scale-in"), condemned_at=NOW - 60)
    assert acts_of([view], UNKNOWN, 60, NOW)["w-0"].verb is None


def test_while_slurm_is_unknown_nothing_of_the_new_revision_is_available() -> None:
    workers = [worker(0), *(worker(n, OLD) for n in (1, 2, 3))]
    fields = node_set(replicas=4, updateStrategy={"rollingUpdate": {"maxUnavailable": 2}}).spec
    assert workers_plan(fields, workers, UNKNOWN, NEW, NOW).condemned == {}


def test_on_delete_updates_nobody() -> None:
    assert planned([worker(n, OLD) for n in range(4)], updateStrategy={"type": "OnDelete"}) == ([], {})


def test_without_a_number_an_update_loses_no_worker() -> None:
    """Neither while the first one ends, nor before its replacement is made."""
    fields = node_set(replicas=None).spec
    going = worker(3, OLD, condemned=UPDATE, is_ending=True)
    seen = snapshot()
    assert workers_plan(fields, [*THREE, going], seen, NEW, NOW, before=4).condemned == {}
    plan = workers_plan(fields, THREE, seen, NEW, NOW, before=4)
    assert (plan.create, plan.condemned) == ((3,), {})
    assert workers_plan(fields, THREE, seen, NEW, NOW).create == ()


def test_a_way_to_scale_that_is_not_built_makes_and_ends_none() -> None:
    on_demand = {"redbox": {"onDemand": {"max": 9}}}
    assert planned([*THREE, worker(3), worker(4)], **on_demand) == ([], {})
    assert planned([], **on_demand) == ([], {})


@pytest.mark.parametrize(
    ("given", "number"),
    [(None, 2), ("25%", 2), ("30%", 3), ("1%", 1), ("100%", 10), (3, 3), ("4", 4), (0, 1), ("0%", 1)],
)
def test_how_many_may_be_missing(given: int | str | None, number: int) -> None:
    rolling = {} if given is None else {"rollingUpdate": {"maxUnavailable": given}}
    assert max_unavailable(node_set(updateStrategy=rolling).spec, 10) == number


def test_all_go_with_their_node_set() -> None:
    workers = [
        worker(0),
        worker(1, condemned=SCALE_IN),
        worker(2, condemned="bad fan"),
        worker(3, force_delete="x"),
    ]
    assert deletion_plan(workers).condemned == {"w-0": DELETED, "w-1": DELETED, "w-3": FORCED}
