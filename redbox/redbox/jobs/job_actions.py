"""Actions on jobs: sent as the job's user, bound to its mark; cancels are sent again until they work.

A journaled cancel is a promise: it is sent as soon as the job has an id, again while it shows no effect, and
again if the job lives again. Duplicates, jobs that carry the mark of a record with another id, are cancelled
while they wait and reported when they no longer do.

A pod that runs is stopped before it is cancelled: its runner gets SIGTERM, and has the pod's grace to run
preStop, to stop the containers and to report their ends. A cancel of Slurm would cut that short by KillWait.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import structlog

from redbox.core.domain import Caller, JobKey, Role
from redbox.core.observations import Observation, TaskObservation
from redbox.core.workload_manager import ActionResult, JobAction, JobHandle, JobStates
from redbox.jobs.context import Context, JobsComponent
from redbox.jobs.errors import Forbidden, JobConflict, JobsBusy, NotAcceptable
from redbox.jobs.queue_snapshot import SnapshotIndex, SnapshotMatch
from redbox.jobs.record.messages import HELD_FOR_DEPENDENCY
from redbox.jobs.record.record import JobRecord, Lineage, Stage, lineage, with_warning
from redbox.jobs.record.state_machine import merge_tasks
from redbox.observability.job_audit import REDBOX, AuditEntry
from redbox_api.models import FINAL_PHASES, Phase
from redbox_shared.backoff import Backoff

log = structlog.get_logger(__name__)

LONGEST_PAUSE_S = 300.0


class JobActions(JobsComponent):
    """Sends actions, and keeps track of the cancels that are still to be sent."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._backoff = Backoff(context.settings.cancel_again_s, LONGEST_PAUSE_S, jitter=0.0)
        self._sent: dict[tuple[str, int], tuple[float, int]] = {}  # (id, run) -> when last, how often

    async def act(
        self, handle: JobHandle, act: JobAction, *, signal: str | None = None, run: int | None = None
    ) -> ActionResult:
        """Send it once, with the deadline of all calls."""
        return await self._context.call(self._workload.act(handle, act, signal=signal, run=run))

    def follow(self, record: JobRecord, found: SnapshotMatch, _: SnapshotIndex) -> None:
        """After each poll: send the cancel that is due, and cancel duplicates."""
        self.cancel_if_due(record)
        for job in found.duplicates:
            if is_cancellable_duplicate(record, job, self._workload.states):
                self._cancel_duplicate(record, job)

    def cancel_if_due(self, record: JobRecord) -> None:
        """Send the requested cancel, if the job has an id and lives."""
        handle = record.handle
        wanted = record.cancel_requested and record.stage is Stage.BOUND and not record.final
        if handle is None or not wanted or record.status.state == "COMPLETING":
            return
        if has_grace(record, self._clock.now()):
            self._stop_if_due(record, handle)
        elif self._is_due((handle.job_id, record.run)):
            work = self._cancel(record.key, handle, why=record.limits_exceeded)
            self._background.start(("cancel", record.key), work, of=record.user.uid)

    def _stop_if_due(self, record: JobRecord, handle: JobHandle) -> None:
        """Signal a pod's runner: once, and again only where that failed, or by the next server."""
        run = (handle.job_id, -record.run)
        if self._is_due(run):
            work = self._stop(record, handle, run)
            self._background.start(("stop", record.key), work, of=record.user.uid)

    async def _stop(self, record: JobRecord, handle: JobHandle, run: tuple[str, int]) -> None:
        """Its grace counts from the first try: where no signal arrives, the cancel follows all the same."""
        now = self._clock.now()
        await self._store.change_one(record.key, lambda current: stopping(current, now))
        outcome = await self.act(handle, JobAction.STOP)
        if outcome.done:
            self._sent[run] = (float("inf"), 0)
        elif not outcome.gone:
            await self._warn(record.key, f"Slurm did not pass SIGTERM to the pod's runner: {outcome.detail}")

    def _is_due(self, run: tuple[str, int]) -> bool:
        """Each pause is twice as long as the last."""
        now = self._clock.monotonic()
        last, times = self._sent.get(run, (float("-inf"), 0))
        if now - last < self._backoff.pause_s(times):
            return False
        if len(self._sent) > len(self._store.index) + 1000:
            self._sent.clear()
        self._sent[run] = (now, times + 1)
        return True

    async def _cancel(self, key: JobKey, handle: JobHandle, *, why: str = "") -> None:
        """`why` explains a cancel that no caller requested, and is logged and audited."""
        outcome = await self.act(handle, JobAction.CANCEL)
        if why:
            log.warning("job cancelled by red-box", job_id=handle.job_id, job=str(key), reason=why)
            done = "done" if outcome.done else "refused"
            user = handle.user.name
            self._context.audit(
                AuditEntry(REDBOX, user, JobAction.CANCEL, str(key), done, handle.job_id, why)
            )
        if not outcome.done and not outcome.gone:
            await self._warn(key, f"Slurm did not cancel job {handle.job_id}: {outcome.detail}")

    def _cancel_duplicate(self, record: JobRecord, job: Observation) -> None:
        if self._is_due((job.job_id, 0)):
            handle = JobHandle(job.job_id, record.mark, job.name, record.user)
            why = f"A second job of this mark: {record.job_id or 'another'} is the one that counts."
            work = self._cancel(record.key, handle, why=why)
            self._background.start(("cancel duplicate", job.job_id), work, of=record.user.uid)

    async def _warn(self, key: JobKey, warning: str) -> None:
        record = self._store.index.get(key)
        if record is not None:
            await self._store.change_free([record], lambda current: with_warning(current, warning))


def may_act_for_others(caller: Caller, act: JobAction) -> bool:
    """Whether an operator does this to jobs of others, beside cancelling them."""
    if act is not JobAction.REQUEUE or not caller.may(Role.OPERATOR):
        return act in {JobAction.HOLD, JobAction.RELEASE, JobAction.CANCEL_TASK}
    if not caller.may(Role.REQUEUE):
        raise Forbidden(
            f"{caller.identity} may not requeue jobs of others: its mapping rule lacks the role requeue."
        )
    return True


def handle_for(record: JobRecord, act: JobAction, task: int | None) -> JobHandle:
    """To act on the job, or on a task of it; raises what refuses that."""
    if (handle := record.handle) is None:
        raise JobConflict("The job is still being submitted: there is nothing to act on yet.")
    if record.held_retry and act is JobAction.RELEASE:
        raise JobsBusy(
            "red-box itself holds this job until it is certain that it is the only one.", retry_after=10
        )
    if record.held_for_dependency and act is JobAction.RELEASE:
        raise NotAcceptable(HELD_FOR_DEPENDENCY)
    if task is None:
        return handle
    if not record.status.array_size:
        raise NotAcceptable(f"The job is not an array: it has no task {task}.")
    return replace(handle, job_id=f"{handle.job_id}_{task}")


def with_cancelled_task(record: JobRecord, task: int) -> JobRecord:
    """Of a task that is cancelled while it waits Slurm keeps no trace, in its queue or its accounting.

    The array would wait for its end. One that has begun is left to what Slurm shows of it.
    """
    status = record.status
    if status.task(task) is not None:
        return record
    cancelled = TaskObservation(task, f"{record.job_id}_{task}", "CANCELLED")
    return replace(record, status=replace(status, tasks=merge_tasks(status.tasks, [cancelled])))


def has_grace(record: JobRecord, now: datetime) -> bool:
    """Whether a pod's runner may still stop the containers by itself."""
    runs = record.phase in {Phase.RUNNING, Phase.SUSPENDED}
    if not record.is_pod or not runs or record.cancel_forced or record.limits_exceeded:
        return False
    since = record.stopping_since
    return since is None or (now - since).total_seconds() < record.grace_s


def stopping(record: JobRecord, now: datetime) -> JobRecord:
    return record if record.stopping_since is not None else replace(record, stopping_since=now)


def is_cancellable_duplicate(record: JobRecord, duplicate: Observation, states: JobStates) -> bool:
    """Whether to cancel another job with this mark: while it waits, and in any state once deleted."""
    phase = states.phase_of(duplicate.state)
    if duplicate.job_id == record.job_id or not duplicate.live or phase is None or phase in FINAL_PHASES:
        return False
    if record.cancel_requested:
        return True
    undecided = record.held_retry and not record.final  # `UnconfirmedSubmits` decides which of two stays
    return phase is Phase.PENDING and not undecided


def line_of(record: JobRecord) -> Lineage:
    return lineage(record.key.owner, record.key.key)
