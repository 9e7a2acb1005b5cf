"""What Slurm said of nodes and jobs at one moment, for decisions that must not guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic

from redbox_hosting.slurm.answers import RestJob, RestNode, RestReservation
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.errors import SlurmrestdError
from redbox_hosting.slurm.old_reasons import OldReasons

TERMINAL = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
        *("PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)
"""Base states of jobs that have ended. COMPLETING may stand beside one of them: then the job has not."""
NOT_OVER = frozenset({"COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING", "CONFIGURING"})


@dataclass(frozen=True, slots=True)
class SlurmSnapshot:
    """Nodes first, then jobs: a job that begins in between is seen on a node, or with it.

    `unknown` is why there is no snapshot; then everything else is empty and means nothing.
    """

    taken_at: float
    nodes: Mapping[str, RestNode] = field(default_factory=dict)
    jobs: tuple[RestJob, ...] = ()
    reservations: tuple[RestReservation, ...] = ()
    unknown: str = ""
    read_at: float = float("-inf")
    """When the last answer was there; `taken_at` is the time before the first request."""
    _on: dict[str, list[RestJob]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _pending_for: dict[str, list[RestJob]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """By node: thousands of workers ask for their jobs."""

    def __post_init__(self) -> None:
        for job in self.jobs:
            if has_ended(job):
                continue
            for node in dict.fromkeys(job.nodes):
                self._on.setdefault(node, []).append(job)
            for node in dict.fromkeys(job.required_nodes):
                self._pending_for.setdefault(node, []).append(job)

    def jobs_on(self, node: str) -> list[RestJob]:
        """Those that have not ended and have this node."""
        return self._on.get(node, [])

    def pending_for(self, node: str) -> list[RestJob]:
        """Those that wait and ask for this node by name: without its record they never start."""
        return self._pending_for.get(node, [])

    def reservations_of(self, node: str) -> list[str]:
        return [each.name for each in self.reservations if node in each.node_list]


def has_ended(job: RestJob) -> bool:
    """Whether nothing of it can still run."""
    return bool(job.job_state & TERMINAL) and not job.job_state & NOT_OVER


async def read_snapshot(client: SlurmrestdClient, taken_at: float, old_reasons: OldReasons) -> SlurmSnapshot:
    """`taken_at` is the time before the first request: whatever it shows is at least as new.

    Unless Slurm's own time in the answers is that of earlier ones, which may have come once more.
    """
    try:
        nodes = {node.name: node for node in old_reasons.corrected(await client.nodes())}
        jobs = await client.jobs()
        reservations = await client.reservations()
    except SlurmrestdError as error:
        return SlurmSnapshot(taken_at, unknown=str(error))
    taken_at = min(taken_at, client.asked_at)
    return SlurmSnapshot(taken_at, nodes, jobs, reservations, read_at=monotonic())
