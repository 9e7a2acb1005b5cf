"""Which jobs of a worker that ended are named as lost, in whichever order its end and theirs are shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import pytest

from redbox_hosting.controllers.workers.lost_jobs import SHOWN_WITHIN_S, LostJobs
from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_hosting.slurm.answers import RestJob
from tests.hosting.factories import node_set, worker
from tests.hosting.nodeset.rows import NOW, UNKNOWN, job, snapshot


@dataclass(frozen=True)
class Look:
    """One snapshot of the worker w-0 and its job: seconds after the first one, and how it is shown."""

    after_s: float
    job: RestJob | None
    restarts: int = 0
    is_there: bool = True
    is_unknown: bool = False


ON_IT, REQUEUED = job(), job(state="PENDING", nodes="")
ELSEWHERE, FAILED, COMPLETED = job(nodes="w-1"), job(state="NODE_FAIL"), job(state="COMPLETED")
LATE = SHOWN_WITHIN_S + 1


@pytest.mark.parametrize(
    ("case", "looks", "lost"),
    [
        ("nothing ended", [Look(0, ON_IT), Look(1, COMPLETED)], []),
        ("the container first", [Look(0, ON_IT), Look(1, ON_IT, 1), Look(2, REQUEUED, 1)], [7]),
        (
            "the job first",
            [Look(0, ON_IT), Look(1, REQUEUED), Look(2, REQUEUED, 1), Look(3, REQUEUED, 1)],
            [7],
        ),
        (
            "it runs again before",
            [Look(0, ON_IT), Look(1, ELSEWHERE), Look(2, ELSEWHERE, 1), Look(3, ELSEWHERE, 1)],
            [7],
        ),
        ("without requeue", [Look(0, ON_IT), Look(1, FAILED), Look(2, FAILED, 1), Look(3, FAILED, 1)], [7]),
        ("both in one look", [Look(0, ON_IT), Look(1, REQUEUED, 1), Look(2, REQUEUED, 1)], [7]),
        ("the pod", [Look(0, ON_IT), Look(1, ON_IT, is_there=False), Look(2, REQUEUED, is_there=False)], [7]),
        (
            "Slurm is away meanwhile",
            [Look(0, ON_IT), Look(1, None, 1, is_unknown=True), Look(2, REQUEUED, 1)],
            [7],
        ),
        (
            "it ended before",
            [Look(0, ON_IT), Look(1, COMPLETED), Look(2, COMPLETED, 1), Look(3, COMPLETED, 1)],
            [],
        ),
        (
            "somebody requeued it long before",
            [Look(0, ON_IT), Look(LATE, REQUEUED), Look(LATE + 1, REQUEUED, 1), Look(LATE + 2, REQUEUED, 1)],
            [],
        ),
        ("forgotten by Slurm", [Look(0, ON_IT), Look(1, None, 1), Look(2, None, 1)], []),
    ],
)
def test_jobs_that_ended_with_their_worker_are_named(case: str, looks: list[Look], lost: list[int]) -> None:
    lost_jobs = LostJobs()
    found = [
        (view.pod.name, each.job_id)
        for look in looks
        for view, jobs in lost_jobs.found(world(look))
        for each in jobs
    ]
    assert found == [("w-0", number) for number in lost], case


def world(look: Look) -> WorkerWorld:
    """As far as it is read."""
    shown = UNKNOWN if look.is_unknown else snapshot(*([look.job] if look.job else []))
    workers: tuple[WorkerView, ...] = (replace(worker(), restarts=look.restarts),) if look.is_there else ()
    made = SimpleNamespace(
        node_set=node_set(), workers=workers, snapshot=replace(shown, taken_at=NOW + look.after_s)
    )
    return cast("WorkerWorld", made)
