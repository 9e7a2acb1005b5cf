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
from redbox.sessions.targets import SessionTarget, is_ending, is_suspended, still_runs

SHOWN_S = 5.0
"""For Slurm to answer a poll, or to carry out a cancel that was requested."""


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
        """Why the relay has gone: with its job, if that has ended, and else as the error says.

        Slurm shows the end of a job before it ends its steps: so one poll decides.
        """
        if self.is_suspended():
            resumed = "Its job is suspended: begin again once it is resumed."
            return SessionEnded(error.reason, f"{error.message} {resumed}")
        with suppress(TimeoutError):
            async with asyncio.timeout(SHOWN_S):
                if not self._ends():
                    await self.jobs.poll_anew()
                while not self._ends() and self._is_cancelled():
                    await self.jobs.next_change()
        return job_ended() if self._ends() else error

    def is_suspended(self) -> bool:
        return is_suspended(self.jobs.current(self.record.key), self.workload.states, self.task)

    def _ends(self) -> bool:
        current = self.jobs.current(self.record.key)
        return self.job_has_ended() or is_ending(current, self.workload.states, self.task)

    def _is_cancelled(self) -> bool:
        """Whether its end is requested: of a record that is being changed a poll changes nothing."""
        current = self.jobs.current(self.record.key)
        return current is not None and current.cancel_requested

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
