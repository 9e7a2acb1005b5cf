"""Cancel, hold, release, requeue, signal: as the job's user, bound to id and mark, and read back.

An id alone is not enough: slurmctld gives ids out twice. The job is looked up first; if its id is unknown,
or carries another mark or another user, nothing is sent. Slurm's tools then say little, so the job is looked
up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from redbox.core.workload_manager import ActionResult, JobAction, JobHandle, WorkloadManagerError
from redbox.slurm.command_runner import Calls
from redbox.slurm.commands import scancel, scontrol
from redbox.slurm.commands.squeue import QueueRow
from redbox.slurm.commands.submit_errors import is_unavailable, words_of
from redbox.slurm.errors import RequestRefused
from redbox.slurm.queries import Reads
from redbox.slurm.text.states import JOB_STATES, has_ended, has_not_begun

PAUSES_S = (0.1, 0.3, 0.6, 1.0)  # between looks at what an act did


class Acts:
    """Acts on single jobs."""

    def __init__(
        self, calls: Calls, reads: Reads, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._calls = calls
        self._reads = reads
        self._sleep = sleep

    async def act(self, handle: JobHandle, act: JobAction, signal: str | None) -> ActionResult:
        rows = await self._reads.rows_of(handle.user, [handle.job_id])
        refusal = why_not(handle, rows, act)
        if refusal is not None:
            return refusal
        try:
            argv = command(handle, act, signal)
        except RequestRefused as refused:
            return ActionResult(done=False, detail=refused.detail)
        completed = await self._calls.complete(handle.user, argv)
        words = words_of(completed.stderr)
        if completed.code != 0 and is_unavailable(words):
            raise WorkloadManagerError(f"{argv[0]} failed: {words}")
        if completed.code != 0:
            return ActionResult(
                done=False, detail=words or f"{argv[0]} ended with exit code {completed.code}"
            )
        return await self._read_back(handle, act, rows)

    async def _read_back(self, handle: JobHandle, act: JobAction, before: Sequence[QueueRow]) -> ActionResult:
        """Look until it shows, a few times."""
        rows: Sequence[QueueRow] = before
        for pause in (*PAUSES_S, None):
            rows = await self._reads.rows_of(handle.user, [handle.job_id])
            if shows(act, rows, before):
                return ActionResult(done=True)
            if pause is not None:
                await self._sleep(pause)
        states = ", ".join(sorted({row.state for row in rows}))
        return ActionResult(
            done=False, detail=f"Slurm took the {act}, but job {handle.job_id} is still {states}."
        )


def why_not(handle: JobHandle, rows: Sequence[QueueRow], act: JobAction) -> ActionResult | None:
    """Why nothing may be sent, if so."""
    if not rows:
        return ActionResult(
            done=False, gone=True, detail=f"Slurm does not know job {handle.job_id} any more."
        )
    if not is_same_job(handle, rows):
        detail = f"Job {handle.job_id} is another job by now; it was not touched."
        return ActionResult(done=False, gone=True, detail=detail)
    if all(has_ended(row.state) for row in rows) and act is not JobAction.REQUEUE:
        return ActionResult(done=act is JobAction.CANCEL, detail=f"Job {handle.job_id} had already ended.")
    return None


def is_same_job(handle: JobHandle, rows: Sequence[QueueRow]) -> bool:
    """Every part is the user's, and the one that the job goes by carries the mark."""
    identity = next((row for row in rows if row.job_id == handle.job_id), rows[0])
    return identity.comment == handle.mark and all(row.uid == handle.user.uid for row in rows)


def command(handle: JobHandle, act: JobAction, signal: str | None) -> list[str]:
    match act:
        case JobAction.CANCEL:
            return scancel.cancel(handle.job_id, handle.user.name, handle.job_name)
        case JobAction.SIGNAL:
            return scancel.signal(handle.job_id, handle.user.name, handle.job_name, signal or "")
        case _:
            return scontrol.act_on(act.value, handle.job_id)


def shows(act: JobAction, rows: Sequence[QueueRow], before: Sequence[QueueRow]) -> bool:
    """Whether the job is as the act should have left it; one that is gone from the queue has ended."""
    waiting = [row for row in rows if has_not_begun(row.state)]
    match act:
        case JobAction.CANCEL:
            return all(has_ended(row.state) or row.state == "COMPLETING" for row in rows)
        case JobAction.HOLD:
            return any(row.reason in JOB_STATES.held_reasons for row in waiting)
        case JobAction.RELEASE:
            return not any(row.reason in JOB_STATES.held_reasons for row in waiting)
        case JobAction.REQUEUE:
            restarts = max(row.restarts for row in before)
            return any(
                has_not_begun(row.state) or row.state == "COMPLETING" or row.restarts > restarts
                for row in rows
            )
        case JobAction.SIGNAL:
            return True
