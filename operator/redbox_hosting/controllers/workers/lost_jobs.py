"""Jobs that were on a worker when it ended: named in an event, since what ended them is not the operator.

A job is lost if its worker is gone or its container was started again, and Slurm then shows it requeued,
ended by the node's failure, or still on a node whose pod is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_hosting.slurm.answers import RestJob
from redbox_shared.printable import printable

MOST_NAMED, LONGEST_NAME = 10, 40
LOST_STATES = frozenset({"NODE_FAIL", "REQUEUED", "PENDING", "RUNNING", "BOOT_FAIL"})


@dataclass
class _Occupied:
    """A worker with jobs on it, as it was seen last."""

    view: WorkerView
    jobs: tuple[RestJob, ...]
    ended_at: float | None = None
    """When the snapshot was taken that was the newest one as its end was seen."""


@dataclass
class LostJobs:
    """By the uids of NodeSets and of pods. An operator knows only the jobs that it has seen itself."""

    _occupied: dict[str, dict[str, _Occupied]] = field(default_factory=dict)

    def found(self, world: WorkerWorld) -> Iterator[tuple[WorkerView, tuple[RestJob, ...]]]:
        """Each worker that ended with jobs on it, once."""
        occupied_workers = self._occupied.setdefault(world.node_set.uid, {})
        snapshot = world.snapshot
        present = {view.pod.uid: view for view in world.workers}
        for uid, occupied in list(occupied_workers.items()):
            now = present.get(uid)
            if occupied.ended_at is None and (now is None or now.restarts > occupied.view.restarts):
                occupied.ended_at = snapshot.taken_at
            is_known = not snapshot.unknown
            if is_known and occupied.ended_at is not None and snapshot.taken_at > occupied.ended_at:
                del occupied_workers[uid]
                by_id = {job.job_id: job for job in snapshot.jobs}
                if lost := tuple(job for job in occupied.jobs if _is_lost(by_id.get(job.job_id))):
                    yield occupied.view, lost
        if snapshot.unknown:
            return
        for uid, view in present.items():
            if uid in occupied_workers and occupied_workers[uid].ended_at is not None:
                continue
            if jobs := tuple(snapshot.jobs_on(view.pod.name)):
                occupied_workers[uid] = _Occupied(view, jobs)
            else:
                occupied_workers.pop(uid, None)
        if not occupied_workers and world.node_set.being_deleted and not present:
            del self._occupied[world.node_set.uid]


def named_jobs(jobs: Sequence[RestJob]) -> str:
    """For an event: numbers, users and names, which are the users' own words."""
    shown = [
        printable(f"{job.job_id} ({job.user_name}: {job.name[:LONGEST_NAME]})", lines=False)
        for job in jobs[:MOST_NAMED]
    ]
    more = len(jobs) - MOST_NAMED
    return ", ".join([*shown, *([f"and {more} more"] if more > 0 else [])])


def _is_lost(job: RestJob | None) -> bool:
    """A job that Slurm no longer shows ended before."""
    return job is not None and bool(job.job_state & LOST_STATES) and "COMPLETED" not in job.job_state
