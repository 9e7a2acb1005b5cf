"""What ends a session beside its command and its client: its job's end, and silence."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from redbox.core.clock import Clock
from redbox.core.workload_manager import WorkloadManager
from redbox.jobs.record.record import JobRecord
from redbox.jobs.service import JobService
from redbox.sessions.errors import SessionEnded
from redbox.sessions.targets import ENDING, SessionTarget, is_suspended, still_runs

SHOWN_S = 5.0
"""For a poll that shows the end of a job, whose steps Slurm has ended."""


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
        raise job_ended()

    async def why_lost(self, error: SessionEnded) -> SessionEnded:
        """Why the relay has gone: with its job, if the next poll shows so, and else as the error says."""
        if self.is_suspended():
            return SessionEnded(error.reason, f"{error.message}: its job is suspended")
        self.jobs.request_poll()
        with suppress(TimeoutError):
            async with asyncio.timeout(SHOWN_S):
                while not (self.job_has_ended() or self._is_ending()):
                    await self.jobs.next_change()
                return job_ended()
        return error

    def is_suspended(self) -> bool:
        return is_suspended(self.jobs.current(self.record.key), self.workload.states, self.task)

    def _is_ending(self) -> bool:
        current = self.jobs.current(self.record.key)
        return current is not None and current.status.state in ENDING

    def job_has_ended(self) -> bool:
        """Looked at after each change of any job: most are of others."""
        current = self.jobs.current(self.record.key)
        if current is not None and current is self._running:
            return False
        runs = still_runs(current, self.target, self.workload.states, self.task)
        self._running = current if runs else None
        return not runs


def job_ended() -> SessionEnded:
    return SessionEnded("JobEnded", "The job of this session has ended, or was requeued.")


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
