"""A submit's life: intent on the disk, sbatch once, its outcome on the disk, then the answer.

It runs in a task of its own. A caller who gives up, or whose time is over, only detaches: the submit goes
on, and the next PUT of the key joins it. Whatever ends without an answer stays an intent, which `doubts`
settles. Nothing is ever submitted but for a PUT that is waiting or was waiting when sbatch began.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from redbox.core.clock import finishes_within, with_deadline
from redbox.core.domain import JobKey
from redbox.core.workload_manager import (
    SubmitAccepted,
    SubmitOutcome,
    SubmitRejected,
    SubmitUnavailable,
    SubmitUnknown,
    WorkloadManagerError,
)
from redbox.jobs.context import Context
from redbox.jobs.errors import JobsBusy, JobsError, RefusedBySlurm
from redbox.jobs.job_actions import JobActions
from redbox.jobs.queue_snapshot import bind
from redbox.jobs.record.record import JobRecord, Stage, lineage
from redbox.jobs.record.state_machine import never_submitted
from redbox.jobs.store.record_store import Change
from redbox.jobs.submit import submit_request
from redbox.jobs.submit.dependencies import resolve
from redbox.jobs.submit.submit_request import PutRequest
from redbox.jobs.submit.takeover_fence import TakeoverFence
from redbox_api.models import Phase

log = logging.getLogger(__name__)

PATIENCE = 0.8  # of a PUT's time, to wait for what became of an earlier submit: the rest is for saying so


@dataclass(frozen=True, slots=True)
class PutResult:
    """A PUT's success."""

    record: JobRecord
    created: bool
    body_changed: bool = False


@dataclass(frozen=True, slots=True)
class PendingPut:
    """A PUT that is being worked on."""

    order: PutRequest
    task: asyncio.Task[PutResult | JobsError]


class SubmitCoordinator:
    """All submits of this server."""

    def __init__(self, context: Context, group: asyncio.TaskGroup, fence: TakeoverFence) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._workload = context.workload
        self._group = group
        self._fence = fence
        self._puts: dict[JobKey, PendingPut] = {}
        self._submitting: set[JobKey] = set()

    def under_way(self, key: JobKey) -> bool:
        """Whether sbatch may be running for it, as far as this server knows."""
        return key in self._submitting

    async def put(self, order: PutRequest, acts: JobActions, look_soon: Callable[[], None]) -> PutResult:
        """The job of this key: the one that is there, or one that is submitted now."""
        under_way = self._puts.get(order.key)
        joined = under_way is not None
        if under_way is None:
            under_way = self._begin(order, acts, look_soon)
        elif under_way.order.user.uid != order.user.uid or under_way.order.body_id != order.body_id:
            raise submit_request.conflict(order.key)
        if not await finishes_within(self._clock, self._settings.answer_within_s, under_way.task):
            raise JobsBusy("The submit takes long. It goes on: ask again.", retry_after=5)
        result = under_way.task.result()
        if isinstance(result, JobsError):
            raise result
        return replace(result, created=False) if joined else result

    def _begin(self, order: PutRequest, acts: JobActions, look_soon: Callable[[], None]) -> PendingPut:
        task = self._group.create_task(self._bring(order, acts, look_soon))
        under_way = PendingPut(order, task)
        self._puts[order.key] = under_way
        task.add_done_callback(lambda _: self._puts.pop(order.key, None))
        return under_way

    async def _bring(
        self, order: PutRequest, acts: JobActions, look_soon: Callable[[], None]
    ) -> PutResult | JobsError:
        """What came of it, as a value: an exception would end its group, which is the server."""
        try:
            put = await self._settle(order, look_soon)
            acts.cancel_if_due(put.record)
        except JobsError as error:
            return error
        except Exception:  # one request's odd fault is not the server's end; the intent is settled later
            log.exception("the submit of %s failed", order.key)
            return JobsBusy(
                "red-box itself failed over this submit; its log says how. Ask again.", retry_after=10
            )
        finally:
            look_soon()
        return put

    async def _settle(self, order: PutRequest, look_soon: Callable[[], None]) -> PutResult:
        give_up = self._clock.monotonic() + PATIENCE * self._settings.answer_within_s
        while True:
            moved = self._store.index.moved
            try:
                held = await self._intend(order)
                if held is not None:
                    return PutResult(await self._submit(order, held=held), created=True)
            finally:
                self._submitting.discard(order.key)
            record = self._store.index.get(order.key)
            if record is not None and (record.final or record.stage is not Stage.INTENT):
                return PutResult(
                    record, created=False, body_changed=submit_request.body_changed(record, order)
                )
            look_soon()
            await self._moved(moved, give_up)

    async def _moved(self, moved: asyncio.Event, give_up: float) -> None:
        """An earlier submit of this key was never answered: wait until something is known of it."""
        left = give_up - self._clock.monotonic()
        waiting = asyncio.ensure_future(moved.wait())
        try:
            if left <= 0 or not await finishes_within(self._clock, left, waiting):
                raise JobsBusy(
                    "An earlier submit of this key was never answered. It is not known yet whether Slurm "
                    "took it; nothing is submitted twice. Ask again.",
                    retry_after=10,
                )
        finally:
            waiting.cancel()

    # ------------------------------------------------------------------------------------------ the intent

    async def _intend(self, order: PutRequest) -> bool | None:
        """Journal the intent; says whether to submit it held, or None where there is nothing to submit."""
        held: bool | None = None

        def decide() -> Change:
            nonlocal held
            known = self._store.index.get(order.key)
            if not self._is_to_be_submitted(known, order):
                return Change()
            intent = self._intent(known, order, self._clock.now())
            held = intent.held_retry
            self._submitting.add(order.key)
            return Change(save=(intent,))

        await self._store.change([lineage(order.key.owner, order.key.key)], decide)
        return held

    def _is_to_be_submitted(self, known: JobRecord | None, order: PutRequest) -> bool:
        if known is not None:
            submit_request.refuse_unless_same(known, order)
            if known.stage is not Stage.UNCONFIRMED:
                return False
        elif self._store.tombstones.covering(order.key) is not None:
            raise submit_request.tombstoned(order.key)
        self._fence.refuse(self._clock.now())
        submit_request.refuse_beyond_limits(order)
        self._dependencies(order)  # what can never be submitted leaves no intent
        return True

    def _intent(self, known: JobRecord | None, order: PutRequest, now: datetime) -> JobRecord:
        """Held where an earlier submit may still arrive, of this server or of the one before it.

        That is known before sbatch runs: whoever finds the job by its mark must know to release it.
        """
        if known is not None:
            return submit_request.tried_again(known, order, now)
        unanswered_at = self._fence.holds_since(now)
        fresh = submit_request.new_record(order, now)
        return replace(fresh, held_retry=unanswered_at is not None, unanswered_at=unanswered_at)

    def _dependencies(self, order: PutRequest) -> tuple[str, ...]:
        owner = order.key.owner
        return resolve(order.request.dependencies, lambda key: self._store.index.line(owner, key))

    # ------------------------------------------------------------------------------------------ the submit

    async def _submit(self, order: PutRequest, *, held: bool) -> JobRecord:
        intent = self._store.index.get(order.key)
        if intent is not None and intent.cancel_requested:
            outcome: SubmitOutcome = SubmitUnavailable("It was deleted before it was submitted.")
        else:
            outcome = await self._outcome(order, held=held)
        return await self._conclude(order, outcome, held=held)

    async def _outcome(self, order: PutRequest, *, held: bool) -> SubmitOutcome:
        """Whatever goes wrong once sbatch may have begun is Unknown."""
        ready = submit_request.submission(order, self._dependencies(order), held=held)
        try:
            return await with_deadline(
                self._clock, self._settings.submit_limit_s, self._workload.submit(order.user, ready)
            )
        except TimeoutError:
            return SubmitUnknown("no answer in time")
        except WorkloadManagerError as fault:
            return SubmitUnknown(fault.detail)

    async def _conclude(self, order: PutRequest, outcome: SubmitOutcome, *, held: bool) -> JobRecord:
        """Write down what came of it, beside what the poller and a DELETE may have written meanwhile."""

        def decide() -> Change:
            record = self._store.index.get(order.key)
            if record is None or record.stage is not Stage.INTENT:
                return Change()
            return concluded(record, outcome, held=held, now=self._clock.now())

        await self._store.change([lineage(order.key.owner, order.key.key)], decide)
        record = self._store.index.get(order.key)
        if record is not None and record.stage is Stage.BOUND:
            return record
        raise _refusal(order, outcome, record)


def concluded(record: JobRecord, outcome: SubmitOutcome, *, held: bool, now: datetime) -> Change:
    """An intent after its submit ended so. Pure."""
    if isinstance(outcome, SubmitAccepted):
        return Change(save=(_accepted(record, outcome, held=held, now=now),))
    if isinstance(outcome, SubmitUnknown):
        return Change(save=(replace(record, last_submit_at=now),))
    if record.cancel_requested:
        return Change(save=(never_submitted(record, now, may_still_arrive=held),))
    if held:
        before = record.unanswered_at or record.last_submit_at  # that one may still arrive
        return Change(save=(replace(record, stage=Stage.UNCONFIRMED, last_submit_at=before),))
    return Change(forget=(record.key,))


def _accepted(record: JobRecord, outcome: SubmitAccepted, *, held: bool, now: datetime) -> JobRecord:
    return replace(
        bind(record, outcome.job_id, now),
        phase=Phase.PENDING,
        held_retry=held,
        warnings=(*record.warnings, *outcome.warnings),
        working_directory=outcome.working_directory or record.working_directory,
    )


def _refusal(order: PutRequest, outcome: SubmitOutcome, record: JobRecord | None) -> JobsError:
    if record is not None and record.stage is Stage.NEVER:
        return submit_request.tombstoned(order.key)
    if isinstance(outcome, SubmitRejected):
        return RefusedBySlurm(outcome.detail)
    if isinstance(outcome, SubmitUnavailable):
        return JobsBusy(
            f"Slurm cannot be asked now, and nothing was submitted: {outcome.detail}", retry_after=10
        )
    detail = outcome.detail if isinstance(outcome, SubmitUnknown) else "the answer could not be kept"
    return JobsBusy(
        f"Slurm's answer to the submit is not known ({detail}). It is looked for: ask again.", retry_after=10
    )
