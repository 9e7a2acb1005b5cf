"""What ends a session beside its command and its client: its job's end, and silence."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from redbox.core.clock import Clock
from redbox.core.workload_manager import WorkloadManager
from redbox.jobs.record.record import JobRecord
from redbox.jobs.service import JobService
from redbox.sessions.errors import SessionEnded
from redbox.sessions.targets import SessionTarget, still_runs


@dataclass
class JobWatch:
    """Whether the job of a session runs on, in the same run."""

    jobs: JobService
    workload: WorkloadManager
    record: JobRecord
    target: SessionTarget
    task: int | None
    _running: JobRecord | None = None  # as it was at the last check

    async def until_job_ends(self) -> None:
        """Raise SessionEnded when the job has ended, or was requeued."""
        while not self.job_has_ended():
            await self.jobs.next_change()
        raise SessionEnded("JobEnded", "The job of this session has ended, or was requeued.")

    def job_has_ended(self) -> bool:
        """Looked at after each change of any job: most are of others."""
        current = self.jobs.current(self.record.key)
        if current is not None and current is self._running:
            return False
        runs = still_runs(current, self.target, self.workload.states, self.task)
        self._running = current if runs else None
        return not runs


@dataclass
class IdleTimer:
    """Ends what has carried nothing for too long."""

    limit_s: float
    clock: Clock
    _touched_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.touch()

    def touch(self) -> None:
        self._touched_at = self.clock.monotonic()

    async def until_idle(self) -> None:
        """Raise SessionEnded when nothing has been sent or received for too long."""
        if not self.limit_s:
            await asyncio.Future()
        while (left := self._touched_at + self.limit_s - self.clock.monotonic()) > 0:  # noqa: ASYNC110 (a moment)
            await asyncio.sleep(left)
        raise SessionEnded(
            "Idle", f"Nothing was sent or received for {self.limit_s:.0f} s (exec.idle_limit)."
        )
