"""Submits without an answer: found by their mark, or proven absent, before they are submitted once more.

An intent without an id is ambiguous until no sbatch with its mark runs on this host, a minute has passed, a
complete poll that began after that does not show its mark, and the accounting does not either. Only then is
it *unconfirmed*: a live PUT may submit it once more, held. The held retry is released when it is proven to
be the only job, and no other can arrive any more. A job that could have come and gone unseen is Lost and
never submitted a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from redbox.core.domain import JobKey
from redbox.core.observations import Observation, ObservedStatus
from redbox.core.workload_manager import AccountingSnapshot, JobAction, JobHandle, shows_all_jobs_of
from redbox.jobs.context import Context, JobsComponent
from redbox.jobs.job_actions import JobActions, line_of
from redbox.jobs.queue_snapshot import SnapshotIndex, SnapshotMatch, bind, is_as_submitted
from redbox.jobs.record.record import JobRecord, Stage
from redbox.jobs.record.state_machine import StateMachine, lost, never_submitted
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.record_store import Change
from redbox.jobs.submit.duplicates import ClaimRank, jobs_with_mark, rank_of, resolve_duplicates
from redbox_api.models import Phase

SINCE_SLACK = timedelta(hours=1)
LOST_UNSEEN = (
    "Lost: red-box was away while it was being submitted, and this cluster keeps no accounting that "
    "could show whether it ran. It is not submitted again."
)


@dataclass(frozen=True, slots=True)
class MissedPolls:
    """The polls that did not show a mark, of which no two were too far apart."""

    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Absence:
    """Since when no poll has shown a mark, and since when no sbatch with it has run."""

    first_poll: datetime
    quiet_since: datetime


def settle_intent(
    record: JobRecord, history: AccountingSnapshot, absence: Absence, now: datetime, machine: StateMachine
) -> JobRecord:
    """An intent that no complete poll has shown, by what accounting has of it. Pure."""
    if record.stage is not Stage.INTENT:
        return record
    row = next(iter(jobs_with_mark(record, history.jobs)), None)
    if row is not None:
        if not is_as_submitted(record, row):
            return record
        return machine.observe(bind(record, row.job_id, now), row, now)
    if history.available and not history.complete:
        return record
    return _not_found(record, history, absence, now, machine.settings)


def _not_found(
    record: JobRecord,
    history: AccountingSnapshot,
    absence: Absence,
    now: datetime,
    settings: JobsSettings,
) -> JobRecord:
    # It could have run and left the queue before any poll.
    may_have_left = (absence.first_poll - record.last_submit_at).total_seconds() > settings.min_job_age_s
    if may_have_left and not history.available:
        return lost(record, now, LOST_UNSEEN)
    if may_have_left and (now - absence.first_poll).total_seconds() < settings.rows_late_s:
        return record
    if record.cancel_requested:
        return never_submitted(record, now, may_still_arrive=True)
    longest = timedelta(seconds=settings.submit_limit_s)
    ended_by = min(absence.quiet_since, record.last_submit_at + longest)
    return replace(record, stage=Stage.UNCONFIRMED, last_submit_at=max(record.last_submit_at, ended_by))


class UnconfirmedSubmits(JobsComponent):
    """Settles intents that no task submits any more, and proves that held retries are the only job."""

    def __init__(
        self, context: Context, actions: JobActions, is_submitting: Callable[[JobKey], bool]
    ) -> None:
        super().__init__(context)
        self._actions = actions
        self._is_submitting = is_submitting
        self._quiet_since: dict[JobKey, datetime] = {}  # no sbatch with its mark has run here since then
        self._missed: dict[JobKey, MissedPolls] = {}

    def follow(self, record: JobRecord, found: SnapshotMatch, snapshot: SnapshotIndex) -> None:
        """After each poll: settle or prove what it allows."""
        key = record.key
        shows_absence = shows_all_jobs_of(record.user.uid, snapshot)
        if record.final or self._is_submitting(key) or not shows_absence:
            return
        if record.stage is not Stage.INTENT:
            self._missed.pop(key, None)
        if record.stage is Stage.INTENT and found.job is None:
            self._note_missed_poll(key, snapshot.begun_at)
            if self._clock.now() - record.last_submit_at >= timedelta(seconds=self._settings.settle_s):
                work = self._settle(record, snapshot.begun_at)
                self._background.start(("settle", key), work, of=record.user.uid)
        elif record.held_retry and record.stage is Stage.BOUND and _began_after(snapshot, record):
            late = snapshot.begun_at - (record.unanswered_at or record.last_submit_at)
            certain = late.total_seconds() >= self._settings.arrives_within_s  # no other arrives any more
            if certain or found.duplicates:
                work = self._prove(record, found, snapshot.begun_at, certain=certain)
                self._background.start(("prove", key), work, of=record.user.uid)

    def _note_missed_poll(self, key: JobKey, polled_at: datetime) -> None:
        """A gap in which a job could have come and gone makes all earlier polls worthless."""
        missed = self._missed.get(key)
        if missed is None or (polled_at - missed.last).total_seconds() > self._settings.min_job_age_s:
            missed = MissedPolls(polled_at, polled_at)
        self._missed[key] = replace(missed, last=polled_at)

    async def _settle(self, record: JobRecord, polled_at: datetime) -> None:
        if await self._context.call(self._workload.submitting(record.user, record.mark)):
            self._quiet_since.pop(record.key, None)
            await self._change(record.key, lambda now, current: replace(current, last_submit_at=now))
            return
        quiet_since = self._quiet_since.setdefault(record.key, self._clock.now())
        if polled_at <= quiet_since:
            return  # an sbatch may have ended after the poll began: the next poll decides
        history = await self._history(record)
        missed = self._missed.get(record.key)
        absence = Absence(missed.first if missed else polled_at, quiet_since)
        await self._change(
            record.key, lambda now, current: settle_intent(current, history, absence, now, self._machine)
        )
        self._quiet_since.pop(record.key, None)

    async def _prove(
        self, record: JobRecord, found: SnapshotMatch, polled_at: datetime, *, certain: bool
    ) -> None:
        """Of a submit and its held retry one wins: the retry is released, or replaced by the other job."""
        history = await self._history(record)
        if history.available and not history.complete:
            return
        others = [*found.duplicates, *history.jobs]
        verdict = resolve_duplicates(record, found.job, others, polled_at, self._machine.states)
        if verdict.winner is not None:
            await self._adopt(record, verdict.winner)
        elif not verdict.unclear and await self._cancel_all(record, verdict.losers) and certain:
            await self._release(record)

    async def _cancel_all(self, record: JobRecord, losers: Iterable[Observation]) -> bool:
        for job in losers:
            if not await self._cancel(JobHandle(job.job_id, record.mark, job.name, record.user)):
                return False
        return True

    async def _cancel(self, handle: JobHandle) -> bool:
        outcome = await self._actions.act(handle, JobAction.CANCEL)
        return outcome.done or outcome.gone

    async def _release(self, record: JobRecord) -> None:
        """It is the only job: red-box's own hold ends."""
        waits = record.phase in (Phase.SUBMITTING, Phase.PENDING)
        if waits and not record.hold and record.handle is not None and not record.cancel_requested:
            outcome = await self._actions.act(record.handle, JobAction.RELEASE)
            if not outcome.done:
                return
        await self._change(record.key, lambda _, current: _proven(current, record))

    async def _adopt(self, record: JobRecord, winner: Observation) -> None:
        """Bind the winner, which is to be proven in turn if it is held, and cancel the job that was bound.

        In this order: a poll that shows the former job as cancelled must not take that for the record's end.
        Where the cancel fails, that job is a duplicate of the next poll, and cancelled as such.
        """
        held = rank_of(winner, self._machine.states) is ClaimRank.HELD

        def adopt(now: datetime, current: JobRecord) -> JobRecord:
            if current.job_id != record.job_id:
                return current
            adopted = replace(bind(current, winner.job_id, now), held_retry=held, status=ObservedStatus())
            return self._machine.observe(adopted, winner, now)

        await self._change(record.key, adopt)
        current = self._store.index.get(record.key)
        is_bound = current is not None and current.job_id == winner.job_id
        if is_bound and record.handle is not None:
            await self._cancel(record.handle)

    async def _history(self, record: JobRecord) -> AccountingSnapshot:
        return await self._context.call(
            self._workload.history_of(record.user, since=record.created_at - SINCE_SLACK)
        )

    async def _change(self, key: JobKey, decide: Callable[[datetime, JobRecord], JobRecord]) -> None:
        def decide_now() -> Change:
            record = self._store.index.get(key)
            if record is None or record.final or self._is_submitting(key):
                return Change()
            decided = decide(self._clock.now(), record)
            return Change() if decided == record else Change(save=(decided,))

        record = self._store.index.get(key)
        if record is not None:
            await self._store.change([line_of(record)], decide_now)


def _began_after(snapshot: SnapshotIndex, record: JobRecord) -> bool:
    return record.bound_at is not None and snapshot.begun_at > record.bound_at


def _proven(current: JobRecord, proven: JobRecord) -> JobRecord:
    return replace(current, held_retry=False) if current.job_id == proven.job_id else current
