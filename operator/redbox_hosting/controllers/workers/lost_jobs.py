"""Jobs that were on a worker when it ended: named in an event, since what ended them is not the operator.

A job is lost if its worker is gone or its container was started again, and Slurm then shows it requeued,
ended by the node's failure, or still on a node whose pod is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_hosting.slurm.answers import RestJob
from redbox_hosting.slurm.snapshot import SlurmSnapshot
from redbox_shared.printable import printable

MOST_NAMED, LONGEST_NAME = 10, 40
SHOWN_WITHIN_S = 30.0
"""By Kubernetes, after the end of a container or a pod."""
LOST_STATES = frozenset({"NODE_FAIL", "REQUEUED", "PENDING", "RUNNING", "BOOT_FAIL"})


@dataclass
class _Occupied:
    """A worker with jobs on it, as it was seen last."""

    view: WorkerView
    jobs: dict[int, tuple[RestJob, float]] = field(default_factory=dict)
    """By their ids, each with the time of the last snapshot that had it on the worker."""
    ended_at: float | None = None
    """When the snapshot was taken that was the newest one as its end was seen."""

    def update(self, view: WorkerView, snapshot: SlurmSnapshot, by_id: Mapping[int, RestJob]) -> None:
        """Slurm may requeue a job before Kubernetes shows the end that it was lost with."""
        just_left = {
            job_id: (job, at)
            for job_id, (job, at) in self.jobs.items()
            if snapshot.taken_at - at < SHOWN_WITHIN_S and _is_lost(by_id.get(job_id))
        }
        on_it = {job.job_id: (job, snapshot.taken_at) for job in snapshot.jobs_on(view.pod.name)}
        self.view, self.jobs = view, just_left | on_it


@dataclass
class LostJobs:
    """By the uids of NodeSets and of pods. An operator knows only the jobs that it has seen itself."""

    _occupied: dict[str, dict[str, _Occupied]] = field(default_factory=dict)

    def found(self, world: WorkerWorld) -> Iterator[tuple[WorkerView, tuple[RestJob, ...]]]:
        """Each worker that ended with jobs on it, once."""
        occupied_workers = self._occupied.setdefault(world.node_set.uid, {})
        snapshot = world.snapshot
        present = {view.pod.uid: view for view in world.workers}
        for uid, occupied in occupied_workers.items():
            now = present.get(uid)
            if occupied.ended_at is None and (now is None or now.restarts > occupied.view.restarts):
                occupied.ended_at = snapshot.taken_at
        if snapshot.unknown:
            return
        by_id = {job.job_id: job for job in snapshot.jobs}
        for uid, occupied in list(occupied_workers.items()):
            if occupied.ended_at is not None and snapshot.taken_at > occupied.ended_at:
                del occupied_workers[uid]
                if lost := tuple(job for job, _ in occupied.jobs.values() if _is_lost(by_id.get(job.job_id))):
                    yield occupied.view, lost
        for uid, view in present.items():
            occupied = occupied_workers.setdefault(uid, _Occupied(view))
            if occupied.ended_at is None:
                occupied.update(view, snapshot, by_id)
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
