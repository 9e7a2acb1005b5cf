"""Submits whose outcome nobody heard: found by their mark, or proved absent, before they are tried again.

An intent without an id is ambiguous until no sbatch with its mark runs on this host, a minute has passed, a
complete look that began after that does not show its mark, and the accounting does not either. Only then is
it *doubtful*: a live PUT may submit it once more, held; the held job is released when it is proved to be
the only one, and no other can arrive any more. Where a job could have come and gone unseen, the answer is
Lost and never a second job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from redbox.core.domain import JobKey
from redbox.core.workload_manager import (
    AccountingSnapshot,
    JobAction,
    JobHandle,
    Observation,
    shows_all_jobs_of,
)
from redbox.jobs.context import Context
from redbox.jobs.job_actions import JobActions, line_of
from redbox.jobs.queue_snapshot import SnapshotIndex, SnapshotMatch, bind
from redbox.jobs.record.record import JobRecord, ObservedStatus, Stage
from redbox.jobs.record.state_machine import lost, never_submitted, observed
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.record_store import Change
from redbox.jobs.submit.duplicates import ClaimRank, jobs_with_mark, rank_of, resolve_duplicates
from redbox_api.models import Phase

SINCE_SLACK = timedelta(hours=1)
UNSEEN = (
    "Lost: red-box was away while it was being submitted, and this cluster keeps no accounting that "
    "could tell whether it ran. It is not submitted again."
)


@dataclass(frozen=True, slots=True)
class MissedPolls:
    """The looks that did not show it, of which no two were too far apart."""

    first_look: datetime
    last_look: datetime


@dataclass(frozen=True, slots=True)
class Absence:
    """Since when no look has shown it, and since when no sbatch with its mark has run."""

    first_look: datetime
    quiet_since: datetime


def settle_intent(
    record: JobRecord, history: AccountingSnapshot, absent: Absence, now: datetime, settings: JobsSettings
) -> JobRecord:
    """An intent that no complete look has shown, with what history says of it. Pure."""
    if record.stage is not Stage.INTENT:
        return record
    row = next(iter(jobs_with_mark(record, history.jobs)), None)
    if row is not None:
        return observed(bind(record, row.job_id, now), row, now, final_after_s=settings.final_after_s)
    if history.available and not history.complete:
        return record
    return _not_found(record, history, absent, now, settings)


def _not_found(
    record: JobRecord, history: AccountingSnapshot, absent: Absence, now: datetime, settings: JobsSettings
) -> JobRecord:
    # It could have run and left the queue before anybody looked.
    forgotten = (absent.first_look - record.last_submit_at).total_seconds() > settings.min_job_age_s
    if forgotten and not history.available:
        return lost(record, now, UNSEEN)
    if forgotten and (now - absent.first_look).total_seconds() < settings.rows_late_s:
        return record
    if record.cancel_requested:
        return never_submitted(record, now, may_still_arrive=True)
    longest = timedelta(seconds=settings.submit_limit_s)
    ended_by = min(absent.quiet_since, record.last_submit_at + longest)
    return replace(record, stage=Stage.UNCONFIRMED, last_submit_at=max(record.last_submit_at, ended_by))


class UnconfirmedSubmits:
    """Settles intents that nobody submits any more, and proves that held jobs are alone."""

    def __init__(self, context: Context, acts: JobActions, under_way: Callable[[JobKey], bool]) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._workload = context.workload
        self._background = context.background
        self._acts = acts
        self._under_way = under_way
        self._quiet_since: dict[JobKey, datetime] = {}  # no sbatch with its mark has run here since then
        self._missing: dict[JobKey, MissedPolls] = {}

    def after(self, look: SnapshotIndex, sightings: Mapping[JobKey, SnapshotMatch]) -> None:
        """After each look: what it lets us settle."""
        for key, sighting in sightings.items():
            record = self._store.index.get(key)
            if record is not None and shows_all_jobs_of(record.user.uid, look):
                self._consider(record, sighting, look)

    def _miss(self, key: JobKey, look: SnapshotIndex) -> None:
        """A gap in which a job could have come and gone makes all earlier looks worthless."""
        known = self._missing.get(key)
        gap = look.begun_at - (known.last_look if known else look.begun_at)
        if known is None or gap.total_seconds() > self._settings.min_job_age_s:
            known = MissedPolls(look.begun_at, look.begun_at)
        self._missing[key] = replace(known, last_look=look.begun_at)

    def _consider(self, record: JobRecord, sighting: SnapshotMatch, look: SnapshotIndex) -> None:
        key = record.key
        if record.final or self._under_way(key):
            return
        if record.stage is not Stage.INTENT:
            self._missing.pop(key, None)
        if record.stage is Stage.INTENT and sighting.job is None:
            self._miss(key, look)
            if self._clock.now() - record.last_submit_at >= timedelta(seconds=self._settings.settle_s):
                work = self._settle(record, look.begun_at)
                self._background.start(("settle", key), work, of=record.user.uid)
        elif record.held_retry and record.stage is Stage.BOUND and _began_after(look, record):
            late = look.begun_at - (record.unanswered_at or record.last_submit_at)
            certain = late.total_seconds() >= self._settings.arrives_within_s  # no other arrives any more
            if not certain and not sighting.duplicates:
                return
            work = self._prove(record, sighting, look.begun_at, certain=certain)
            self._background.start(("prove", key), work, of=record.user.uid)

    async def _settle(self, record: JobRecord, looked_at: datetime) -> None:
        if await self._context.call(self._workload.submitting(record.user, record.mark)):
            self._quiet_since.pop(record.key, None)
            await self._change(record.key, lambda now, current: replace(current, last_submit_at=now))
            return
        quiet_since = self._quiet_since.setdefault(record.key, self._clock.now())
        if looked_at <= quiet_since:
            return  # an sbatch may have ended after the look began: the next look tells
        history = await self._history(record)
        known = self._missing.get(record.key)
        absent = Absence(known.first_look if known else looked_at, quiet_since)
        await self._change(
            record.key, lambda now, current: settle_intent(current, history, absent, now, self._settings)
        )
        self._quiet_since.pop(record.key, None)

    async def _prove(
        self, record: JobRecord, sighting: SnapshotMatch, looked_at: datetime, *, certain: bool
    ) -> None:
        """One of a submit and its retry: it is the job, and is released, or gives way to the other one."""
        history = await self._history(record)
        if history.available and not history.complete:
            return
        verdict = resolve_duplicates(record, sighting.job, [*sighting.duplicates, *history.jobs], looked_at)
        if verdict.winner is not None:
            await self._give_way(record, verdict.winner)
        elif not verdict.unclear and await self._end_all(record, verdict.losers) and certain:
            await self._set_free(record)

    async def _end_all(self, record: JobRecord, losers: Iterable[Observation]) -> bool:
        for job in losers:
            if not await self._ended(JobHandle(job.job_id, record.mark, job.name, record.user)):
                return False
        return True

    async def _set_free(self, record: JobRecord) -> None:
        """It is the only one: it need not be held any more."""
        waits = record.phase in (Phase.SUBMITTING, Phase.PENDING)
        if waits and not record.hold and record.handle is not None and not record.cancel_requested:
            outcome = await self._acts.act(record.handle, JobAction.RELEASE)
            if not outcome.done:
                return
        await self._change(record.key, lambda _, current: _proved(current, record))

    async def _ended(self, handle: JobHandle) -> bool:
        outcome = await self._acts.act(handle, JobAction.CANCEL)
        return outcome.done or outcome.gone

    async def _give_way(self, record: JobRecord, other: Observation) -> None:
        """The other one is the job: this one is cancelled. One that is still held is to be proved in turn."""
        if record.handle is not None and not await self._ended(record.handle):
            return
        held = rank_of(other) is ClaimRank.HELD

        def adopt(now: datetime, current: JobRecord) -> JobRecord:
            if current.job_id != record.job_id:
                return current
            adopted = replace(bind(current, other.job_id, now), held_retry=held, status=ObservedStatus())
            return observed(adopted, other, now, final_after_s=self._settings.final_after_s)

        await self._change(record.key, adopt)

    async def _history(self, record: JobRecord) -> AccountingSnapshot:
        return await self._context.call(
            self._workload.history_of(record.user, since=record.created_at - SINCE_SLACK)
        )

    async def _change(self, key: JobKey, decide: Callable[[datetime, JobRecord], JobRecord]) -> None:
        def now_decide() -> Change:
            record = self._store.index.get(key)
            if record is None or record.final or self._under_way(key):
                return Change()
            decided = decide(self._clock.now(), record)
            return Change() if decided == record else Change(save=(decided,))

        known = self._store.index.get(key)
        if known is not None:
            await self._store.change([line_of(known)], now_decide)


def _began_after(look: SnapshotIndex, record: JobRecord) -> bool:
    return record.bound_at is not None and look.begun_at > record.bound_at


def _proved(current: JobRecord, proved: JobRecord) -> JobRecord:
    return replace(current, held_retry=False) if current.job_id == proved.job_id else current
