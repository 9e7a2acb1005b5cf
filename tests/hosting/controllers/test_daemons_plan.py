"""What is due for a NodeSet with a worker on each Kubernetes node."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.controllers.workers.plans import (
    FORCED,
    HAS_FAILED,
    MACHINE_OFF,
    NOT_SELECTED,
    UPDATE,
    daemons_plan,
)
from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.nodeset.observed import PodPhase, WorkerMachine
from redbox_hosting.nodeset.placement import Placement
from tests.hosting.controllers.test_worker_plans import OLD
from tests.hosting.factories import NEW, node_set, worker
from tests.hosting.nodeset.rows import NOW, job, node, snapshot

ALL = Placement({f"w-{n}": f"w-{n}.example.org" for n in range(4)}, frozenset(f"w-{n}" for n in range(4)))
WITHOUT_3 = Placement({name: ALL.start[name] for name in ("w-0", "w-1", "w-2")}, ALL.stay - {"w-3"})
TAINTED_3 = Placement(WITHOUT_3.start, ALL.stay)
"""No worker may start there, and the one that is there may stay."""
THREE = [worker(0), worker(1), worker(2)]
HAS_ENDED: dict[str, Any] = {"phase": PodPhase.FAILED, "container_ended": True}


@pytest.mark.parametrize(
    ("case", "placed", "workers", "desired", "made", "condemned"),
    [
        ("as wanted", ALL, [*THREE, worker(3)], 4, [], {}),
        ("from nothing", ALL, [], 4, ["w-0", "w-1", "w-2", "w-3"], {}),
        ("a new node", ALL, THREE, 4, ["w-3"], {}),
        ("no node", Placement({}), [], 0, [], {}),
        ("not selected any more", WITHOUT_3, [*THREE, worker(3)], 3, [], {"w-3": NOT_SELECTED}),
        ("condemned for it", WITHOUT_3, [*THREE, worker(3, condemned=NOT_SELECTED)], 3, [], {}),
        ("selected again", ALL, [*THREE, worker(3, condemned=NOT_SELECTED)], 4, [], {"w-3": ""}),
        (
            "selected again, the gate has passed",
            ALL,
            [*THREE, worker(3, condemned=NOT_SELECTED, is_protected=False)],
            4,
            [],
            {},
        ),
        ("the former worker still ends", ALL, [*THREE, worker(3, is_ending=True)], 4, [], {}),
        ("tainted later", TAINTED_3, [*THREE, worker(3)], 4, [], {}),
        ("tainted before", TAINTED_3, THREE, 3, [], {}),
        (
            "a silent machine has no other worker",
            ALL,
            [*THREE, worker(3, machine=WorkerMachine.LOST)],
            4,
            [],
            {},
        ),
        (
            "its machine is off",
            WITHOUT_3,
            [*THREE, worker(3, machine=WorkerMachine.OFF)],
            3,
            [],
            {"w-3": MACHINE_OFF},
        ),
        (
            "its Node is deleted",
            WITHOUT_3,
            [*THREE, worker(3, machine=WorkerMachine.GONE)],
            3,
            [],
            {"w-3": MACHINE_OFF},
        ),
        ("forced", ALL, [*THREE, worker(3, force_delete="x")], 4, [], {"w-3": FORCED}),
        ("evicted", ALL, [*THREE, worker(3, **HAS_ENDED)], 4, [], {"w-3": HAS_FAILED}),
        ("a user's reason stays", ALL, [*THREE, worker(3, condemned="bad fan")], 4, [], {}),
        (
            "a cordoned machine keeps its worker",
            ALL,
            [*THREE, worker(3, machine=WorkerMachine.CORDONED)],
            4,
            [],
            {},
        ),
        (
            "updated, the idle first",
            ALL,
            [worker(0), *(worker(n, OLD) for n in (1, 2, 3))],
            4,
            [],
            {"w-2": UPDATE, "w-1": UPDATE},
        ),
        ("none of the new is there: one", ALL, [worker(n, OLD) for n in range(4)], 4, [], {"w-2": UPDATE}),
        (
            "an old one that goes anyway is no part of the update",
            WITHOUT_3,
            [*THREE, worker(3, OLD)],
            3,
            [],
            {"w-3": NOT_SELECTED},
        ),
    ],
)
def test_the_plan(  # noqa: PLR0917 (a table)
    case: str,
    placed: Placement,
    workers: list[WorkerView],
    desired: int,
    made: list[str],
    condemned: dict[str, str],
) -> None:
    spec = node_set(
        scalingMode="DaemonSet", replicas=1, updateStrategy={"rollingUpdate": {"maxUnavailable": 2}}
    ).spec
    seen = snapshot(*(node("IDLE", view.pod.ordinal) for view in workers), job(nodes="w-3"))
    plan = daemons_plan(spec, workers, placed, seen, newest=NEW, now=NOW)
    assert (plan.desired, sorted(plan.on_machines), dict(plan.condemned)) == (desired, made, condemned), case
    assert plan.create == ()
    assert plan.creates is bool(made)


def test_while_nodes_cannot_be_read_none_is_made_and_none_goes_but_by_force() -> None:
    spec = node_set(scalingMode="DaemonSet").spec
    workers = [*THREE, worker(3, OLD, force_delete="x")]
    plan = daemons_plan(spec, workers, None, snapshot(), newest=NEW, now=NOW)
    assert (plan.desired, plan.creates, plan.condemned) == (4, False, {"w-3": FORCED})
