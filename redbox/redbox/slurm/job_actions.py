"""Cancel, stop, hold, release, requeue, signal: as the job's user, bound to id and mark, and read back.

An id alone is not enough, because slurmctld reuses ids. The job is looked up first; if its id is unknown, or
carries another mark or another user, no command runs. Slurm's tools report little of what they did, so the
job is looked up again afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from redbox.core.workload_manager import ActionResult, JobAction, JobHandle, WorkloadManagerError
from redbox.slurm.command_runner import CommandRunner
from redbox.slurm.commands import scancel, scontrol
from redbox.slurm.commands.squeue import QueueRow
from redbox.slurm.errors import RequestRefused
from redbox.slurm.job_queries import JobQueries, is_same_job
from redbox.slurm.text.error_messages import is_unavailable, words_of
from redbox.slurm.text.states import JOB_STATES, has_ended, has_not_begun

PAUSES_S = (0.1, 0.3, 0.6, 1.0)  # between the lookups after an action


class SlurmActions:
    """Actions on single jobs."""

    def __init__(self, commands: CommandRunner, queries: JobQueries) -> None:
        self._commands = commands
        self._queries = queries

    async def act(
        self, handle: JobHandle, act: JobAction, *, signal: str | None = None, run: int | None = None
    ) -> ActionResult:
        rows = await self._queries.rows_of(handle.user, [handle.job_id])
        refusal = reason_not_to_act(handle, rows, act)
        if refusal is not None:
            return refusal
        if run is not None and act is JobAction.REQUEUE and run_of(rows) > run:
            return ActionResult(done=True, detail=f"Job {handle.job_id} is in run {run_of(rows)} already.")
        try:
            argv = command_for(handle, act, signal)
        except RequestRefused as refused:
            return ActionResult(done=False, detail=refused.detail)
        failure = await self._failure_of(handle, argv)
        return failure or await self._read_back(handle, act, rows)

    async def depend(self, handle: JobHandle, dependencies: Collection[str]) -> ActionResult:
        """Replace the dependencies of a waiting job."""
        rows = await self._queries.rows_of(handle.user, [handle.job_id])
        refusal = reason_not_to_act(handle, rows, JobAction.HOLD)
        if refusal is not None:
            return refusal
        failure = await self._failure_of(handle, scontrol.depend_argv(dependencies, handle.job_id))
        return failure or ActionResult(done=True)

    async def _failure_of(self, handle: JobHandle, argv: Sequence[str]) -> ActionResult | None:
        """Run a command as the job's user; None where it succeeded."""
        completed = await self._commands.complete(handle.user, argv)
        if completed.code == 0:
            return None
        words = words_of(completed.stderr)
        if is_unavailable(words):
            raise WorkloadManagerError(f"{argv[0]} failed: {words}")
        return ActionResult(done=False, detail=words or f"{argv[0]} ended with exit code {completed.code}")

    async def _read_back(self, job: JobHandle, action: JobAction, before: Sequence[QueueRow]) -> ActionResult:
        """Look the job up until it shows the action, a few times."""
        rows: Sequence[QueueRow] = before
        for pause in (*PAUSES_S, None):
            rows = await self._queries.rows_of(job.user, [job.job_id])
            if shows(action, rows, before):
                return ActionResult(done=True, detail=job.job_id if action is JobAction.CANCEL_TASK else "")
            if pause is not None:
                await self._commands.clock.sleep(pause)
        states = ", ".join(sorted({row.state for row in rows}))
        detail = f"Slurm accepted the {action}, but job {job.job_id} is still {states}."
        return ActionResult(done=False, detail=detail)


def reason_not_to_act(job: JobHandle, rows: Sequence[QueueRow], action: JobAction) -> ActionResult | None:
    """The result where no command may run; None where it may."""
    if not rows:
        return ActionResult(done=False, gone=True, detail=f"Slurm no longer has a job {job.job_id}.")
    if not is_same_job(job, rows):
        detail = f"Slurm has reused the id {job.job_id} for another job, which was not touched."
        return ActionResult(done=False, gone=True, detail=detail)
    if all(has_ended(row.state) for row in rows) and action is not JobAction.REQUEUE:
        wanted_its_end = action in {JobAction.CANCEL, JobAction.CANCEL_TASK, JobAction.STOP}
        return ActionResult(done=wanted_its_end, detail=f"Job {job.job_id} had already ended.")
    if action is JobAction.UPDATE and all(has_not_begun(row.state) for row in rows):
        return ActionResult(done=True, detail=f"Job {job.job_id} waits: its runner reads it when it starts.")
    return None


def run_of(rows: Sequence[QueueRow]) -> int:
    """Which run it is, by a fresh query: 1, and one more for each requeue."""
    return 1 + max(row.restarts for row in rows)


def command_for(job: JobHandle, action: JobAction, signal: str | None) -> list[str]:
    match action:
        case JobAction.CANCEL:
            return scancel.cancel_argv(job.job_id, job.user.name, job.job_name)
        case JobAction.CANCEL_TASK:
            return scancel.cancel_task_argv(job.job_id)
        case JobAction.SIGNAL:
            return scancel.signal_argv(job.job_id, job.user.name, job.job_name, signal or "")
        case JobAction.STOP:
            return scancel.runner_argv(job.job_id, job.user.name, job.job_name, scancel.STOP)
        case JobAction.UPDATE:
            return scancel.runner_argv(job.job_id, job.user.name, job.job_name, scancel.UPDATE)
        case _:
            return scontrol.action_argv(action.value, job.job_id)


def shows(action: JobAction, rows: Sequence[QueueRow], before: Sequence[QueueRow]) -> bool:
    """Whether the job is as the action should have left it; one that is gone from the queue has ended."""
    waiting = [row for row in rows if has_not_begun(row.state)]
    match action:
        case JobAction.CANCEL | JobAction.CANCEL_TASK:
            return all(has_ended(row.state) or row.state == "COMPLETING" for row in rows)
        case JobAction.HOLD:
            return any(row.reason in JOB_STATES.held_reasons for row in waiting)
        case JobAction.RELEASE:
            return not any(row.reason in JOB_STATES.held_reasons for row in waiting)
        case JobAction.REQUEUE:
            restarts = max(row.restarts for row in before)
            return bool(waiting) or any(row.state == "COMPLETING" or row.restarts > restarts for row in rows)
        case JobAction.SIGNAL | JobAction.STOP | JobAction.UPDATE:
            return True
