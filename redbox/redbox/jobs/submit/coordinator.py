"""A submit's life: intent in the journal, sbatch once, its outcome in the journal, then the answer.

   PUT --- record of this key exists --> the same job, or JobConflict; deleted --> Tombstoned
    |
    | new key, or unconfirmed (then the submit is a held retry)
    v
   intent --> sbatch --- accepted ------> bound (a held retry stays held until it is proven alone)
                |------- rejected ------> forgotten; a held retry is unconfirmed again
                |------- unavailable      likewise; never, if a DELETE came meanwhile
                '------- no answer -----> intent, until `UnconfirmedSubmits` has looked for its mark:
                                            found --------------------> bound
                                            absent -------------------> unconfirmed
                                            absent and deleted -------> never
                                            may have come and gone ---> final (lost)

A submit runs in a task of its own. A caller that disconnects, or whose deadline passes, only detaches: the
submit goes on, and the next PUT of the key joins it. Only a PUT that waits, or that waited when sbatch
began, ever submits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from redbox.core.clock import finishes_within, is_set_within, with_deadline
from redbox.core.domain import JobKey
from redbox.core.workload_manager import (
    SubmitAccepted,
    SubmitOutcome,
    SubmitRejected,
    SubmitUnavailable,
    SubmitUnknown,
    WorkloadManagerError,
)
from redbox.jobs.context import Context, JobsComponent
from redbox.jobs.errors import JobsBusy, JobsError, RefusedBySlurm
from redbox.jobs.job_actions import JobActions
from redbox.jobs.queue_snapshot import SnapshotIndex, bind, match, sort_observations
from redbox.jobs.record.record import JobDependency, JobRecord, Stage, lineage, with_warning
from redbox.jobs.record.state_machine import never_submitted
from redbox.jobs.store.record_store import Change
from redbox.jobs.submit import submit_request
from redbox.jobs.submit.dependencies import resolve
from redbox.jobs.submit.submit_request import PutRequest
from redbox.jobs.submit.takeover_fence import TakeoverFence
from redbox_api.models import Phase

log = structlog.get_logger(__name__)

WAIT_SHARE = 0.8  # of a PUT's time, to wait for the outcome of an earlier submit: the rest is for the answer


@dataclass(frozen=True, slots=True)
class PutResult:
    """A PUT's success."""

    record: JobRecord
    created: bool
    body_changed: bool = False


class SubmitCoordinator(JobsComponent):
    """All submits of this server."""

    def __init__(
        self, context: Context, group: asyncio.TaskGroup, fence: TakeoverFence, actions: JobActions
    ) -> None:
        super().__init__(context)
        self._group = group
        self._fence = fence
        self._actions = actions
        self._pending: dict[JobKey, tuple[PutRequest, asyncio.Task[PutResult | JobsError]]] = {}
        self._submitting: set[JobKey] = set()

    def is_submitting(self, key: JobKey) -> bool:
        """Whether this server may have an sbatch running for this key."""
        return key in self._submitting

    async def put(self, put: PutRequest) -> PutResult:
        """The job of this key: the existing one, or one that is submitted now."""
        joined = put.key in self._pending
        pending, task = self._pending[put.key] if joined else self._begin(put)
        if (pending.user.uid, pending.body_id) != (put.user.uid, put.body_id):
            raise submit_request.conflict(put.key)
        if not await finishes_within(self._clock, self._settings.answer_within_s, task):
            raise JobsBusy("The submit takes long and goes on. Retry.", retry_after=5)
        result = task.result()
        if isinstance(result, JobsError):
            raise result
        return replace(result, created=False) if joined else result

    def _begin(self, put: PutRequest) -> tuple[PutRequest, asyncio.Task[PutResult | JobsError]]:
        task = self._group.create_task(self._run(put))
        self._pending[put.key] = (put, task)
        task.add_done_callback(lambda _: self._pending.pop(put.key, None))
        return put, task

    async def _run(self, put: PutRequest) -> PutResult | JobsError:
        """The outcome as a value: an exception would end the task group, which is the server."""
        try:
            result = await self._settle(put)
            self._actions.cancel_if_due(result.record)
        except JobsError as error:
            return error
        except Exception:  # a fault over one request must not end the server; the intent is settled later
            log.exception("the submit of %s failed", put.key)
            return JobsBusy("Internal error while submitting; see red-box's log. Retry.", retry_after=10)
        finally:
            self._context.request_poll()
        return result

    async def _settle(self, put: PutRequest) -> PutResult:
        give_up = self._clock.monotonic() + WAIT_SHARE * self._settings.answer_within_s
        while True:
            moved = self._store.index.moved
            await self._verify_dependencies(put)
            try:
                intent = await self._journal_intent(put)
                if intent is not None:
                    outcome = await self._submit(put, held=intent.held_retry)
                    record = await self._journal_outcome(put, outcome, held=intent.held_retry)
                    return PutResult(record, created=True)
            finally:
                self._submitting.discard(put.key)
            record_of_key = self._store.index.get(put.key)
            if record_of_key is not None and (record_of_key.final or record_of_key.stage is not Stage.INTENT):
                changed = submit_request.body_changed(record_of_key, put)
                return PutResult(record_of_key, created=False, body_changed=changed)
            self._context.request_poll()
            left = give_up - self._clock.monotonic()
            if left <= 0 or not await is_set_within(self._clock, left, moved):
                raise JobsBusy(
                    "An earlier submit of this key was never answered. red-box checks whether Slurm "
                    "accepted it; nothing is submitted twice. Retry.",
                    retry_after=10,
                )

    # ------------------------------------------------------------------------------------------ the steps

    async def _journal_intent(self, put: PutRequest) -> JobRecord | None:
        """The intent that is now in the journal; None if there is nothing to submit."""
        intent: JobRecord | None = None

        def decide() -> Change:
            nonlocal intent
            record, now = self._store.index.get(put.key), self._clock.now()
            if not self._is_to_be_submitted(record, put, now):
                return Change()
            # Whether it is held is journaled before sbatch runs: a server that finds the job by its mark
            # must release it.
            if record is not None:
                intent = submit_request.retried_intent(record, put, now)
            else:
                intent = submit_request.new_intent(put, now, self._fence.holds_since(now))
            intent = replace(intent, dependencies=self._dependencies(put))
            self._submitting.add(put.key)
            return Change(save=(intent,))

        await self._store.change([lineage(put.key.owner, put.key.key)], decide)
        return intent

    def _is_to_be_submitted(self, record: JobRecord | None, put: PutRequest, now: datetime) -> bool:
        if record is not None:
            submit_request.refuse_unless_same(record, put)
            if record.stage is not Stage.UNCONFIRMED:
                return False
        elif self._store.tombstones.covering(put.key) is not None:
            raise submit_request.tombstoned(put.key)
        self._fence.refuse(now)
        submit_request.refuse_beyond_limits(put.submission)
        return True

    def _dependencies(self, put: PutRequest) -> tuple[JobDependency, ...]:
        owner = put.key.owner
        return resolve(put.submission.request.dependencies, lambda key: self._store.index.line(owner, key))

    async def _verify_dependencies(self, put: PutRequest) -> None:
        """Slurm must still have the jobs that this one depends on: ids of forgotten ones go to others."""
        if not self._is_to_be_submitted(self._store.index.get(put.key), put, self._clock.now()):
            return
        dependencies = [wanted for wanted in self._dependencies(put) if wanted.key is not None]
        if not dependencies:
            return
        ids = {wanted.job_id for wanted in dependencies if wanted.job_id is not None}
        try:
            found = await self._context.call(self._workload.find_live(sorted(ids), users={put.user}))
        except (WorkloadManagerError, TimeoutError) as fault:
            raise JobsBusy(f"Slurm does not answer: {fault}.", retry_after=5) from fault
        by_mark, by_id = sort_observations(found.jobs, self._store.index, {*ids})
        shown = SnapshotIndex(self._clock.now(), found.complete, by_mark=by_mark, by_id=by_id)
        for wanted in dependencies:
            attempts = self._store.index.line(put.key.owner, wanted.key or "")
            if not any(other.job_id == wanted.job_id and match(other, shown).job for other in attempts):
                self._context.request_poll()
                raise JobsBusy(
                    f"It depends on {wanted.key}, and Slurm does not show job {wanted.job_id} as that job at "
                    "present: red-box is finding out what became of it.",
                    retry_after=5,
                )

    async def _submit(self, put: PutRequest, *, held: bool) -> SubmitOutcome:
        """Call sbatch once; whatever fails after it may have begun is SubmitUnknown."""
        intent = self._store.index.get(put.key)
        if intent is not None and intent.cancel_requested:
            return SubmitUnavailable("It was deleted before it was submitted.")
        submission = replace(
            put.submission,
            dependencies=tuple(map(str, intent.dependencies if intent else ())),
            held=held,
        )
        call = self._workload.submit(put.user, submission)
        try:
            return await with_deadline(self._clock, self._settings.submit_limit_s, call)
        except TimeoutError:
            return SubmitUnknown("no answer in time")
        except WorkloadManagerError as fault:
            return SubmitUnknown(fault.detail)

    async def _journal_outcome(self, put: PutRequest, outcome: SubmitOutcome, *, held: bool) -> JobRecord:
        """Record the outcome, unless the poller or a DELETE have settled the intent meanwhile."""

        def decide() -> Change:
            record = self._store.index.get(put.key)
            if record is None or record.stage is not Stage.INTENT:
                return Change()
            return after_submit(record, outcome, held=held, now=self._clock.now())

        await self._store.change([lineage(put.key.owner, put.key.key)], decide)
        record = self._store.index.get(put.key)
        if record is not None and record.stage is Stage.BOUND:
            return record
        if record is not None and record.stage is Stage.NEVER:
            raise submit_request.tombstoned(put.key)
        raise _error_of(outcome)


def after_submit(record: JobRecord, outcome: SubmitOutcome, *, held: bool, now: datetime) -> Change:
    """An intent after its submit ended with this outcome. Pure."""
    if isinstance(outcome, SubmitAccepted):
        accepted = replace(
            bind(record, outcome.job_id, now),
            phase=Phase.PENDING,
            held_retry=held,
            working_directory=outcome.working_directory or record.working_directory,
            boot_time=outcome.boot_time,
            status=replace(record.status, stdout=outcome.stdout, stderr=outcome.stderr),
        )
        for warning in outcome.warnings:
            accepted = with_warning(accepted, warning)
        return Change(save=(accepted,))
    if isinstance(outcome, SubmitUnknown):
        return Change(save=(replace(record, last_submit_at=now),))
    if record.cancel_requested:
        return Change(save=(never_submitted(record, now, may_still_arrive=held),))
    if held:
        earlier = record.unanswered_at or record.last_submit_at  # that submit may still arrive
        return Change(save=(replace(record, stage=Stage.UNCONFIRMED, last_submit_at=earlier),))
    return Change(forget=(record.key,))


def _error_of(outcome: SubmitOutcome) -> JobsError:
    if isinstance(outcome, SubmitRejected):
        return RefusedBySlurm(outcome.detail)
    if isinstance(outcome, SubmitUnavailable):
        # Not always Slurm's fault: the login node may be away, or the user's home be full.
        return JobsBusy(f"Nothing was submitted, and a retry is right: {outcome.detail}", retry_after=10)
    detail = outcome.detail if isinstance(outcome, SubmitUnknown) else "the answer could not be kept"
    return JobsBusy(
        f"Slurm's answer to the submit is unknown ({detail}). red-box looks for the job. Retry.",
        retry_after=10,
    )
