"""The poller: one look at the queue for all jobs, as often as Slurm can bear, none when nothing is live.

While nothing moves a glance takes a look's place, where that is cheaper: a look follows it only if a state
has changed, or none was had for too long.

A look that fails or is incomplete leaves the last truth standing and grows `stale_since`; one that shows all
jobs of some users does so for the others only. When the last good one was is in the journal, to the minute,
for the server that comes after this one. After each look
the errands (`absences`, `acts`, `doubts`) start what it calls for as chores, so that no user's dead agent
holds up the next look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from redbox.core.clock import finishes_within
from redbox.core.domain import JobKey
from redbox.core.workload_manager import Observation, WorkloadManagerError, shows_all_jobs_of
from redbox.jobs.context import Context
from redbox.jobs.errors import JournalError
from redbox.jobs.job_actions import with_warning
from redbox.jobs.poll import schedule
from redbox.jobs.poll.missing_jobs import MissingJobs, MissingRecords
from redbox.jobs.queue_snapshot import (
    SnapshotIndex,
    SnapshotMatch,
    bind,
    index_snapshot,
    match,
    wanted_filter,
)
from redbox.jobs.record.record import JobRecord, Stage
from redbox.jobs.record.state_machine import dropped_from_queue, observed, shows_nothing_new, tells_all
from redbox.jobs.settings import JobsSettings

log = logging.getLogger(__name__)

GOOD_LOOK_AT = "last good look at"
NOTED_EVERY_S = 60.0
CALM = 3  # looks in a row without anything new: then glances take their place
DUPLICATE = "Duplicate: job {} carries the same mark; it is cancelled if it still waits."
MARK_CHANGED = (
    "The job's comment was changed: red-box still follows it, but can no longer act on it. Use scancel."
)


class PollFollower(Protocol):
    """What a look may call for."""

    def after(self, look: SnapshotIndex, sightings: Mapping[JobKey, SnapshotMatch]) -> None: ...


def after_poll(
    record: JobRecord, sighting: SnapshotMatch, look: SnapshotIndex, now: datetime, settings: JobsSettings
) -> JobRecord:
    """The record after this look. Pure; what absence means for a living job is decided in `absences`."""
    for other in () if record.held_retry else sighting.duplicates:
        record = with_warning(record, DUPLICATE.format(other.job_id))
    job = sighting.job
    if job is not None and not sighting.mark_changed and shows_nothing_new(record, job):
        return record
    if job is not None:
        if is_first_seen_late(record, job, look, settings):
            record = replace(record, first_seen_late=True)
        record = observed(bind(record, job.job_id, now), job, now, final_after_s=settings.final_after_s)
        return with_warning(record, MARK_CHANGED) if sighting.mark_changed else record
    if record.final and record.in_queue and shows_all_jobs_of(record.user.uid, look) and not sighting.unclear:
        in_doubt = record.unanswered_at is not None or record.stage is Stage.NEVER
        arrives = in_doubt and _may_arrive(record, now, settings)
        return record if arrives else dropped_from_queue(record)
    return record


def _may_arrive(record: JobRecord, now: datetime, settings: JobsSettings) -> bool:
    return now - record.last_submit_at < timedelta(seconds=settings.watch_doubts_s)


def is_first_seen_late(
    record: JobRecord, job: Observation, look: SnapshotIndex, settings: JobsSettings
) -> bool:
    """Whether the queue may have forgotten tasks of this array before any look."""
    is_new = bool(job.array_size) and not record.status.array_size
    age = look.begun_at - (job.submitted_at or record.created_at)
    return is_new and age.total_seconds() > settings.min_job_age_s


def is_absent(record: JobRecord, sighting: SnapshotMatch, look: SnapshotIndex) -> bool:
    """Whether a look that began after the job was bound, and shows all of its user's, did not show it."""
    if record.final or record.bound_at is None or record.stage is not Stage.BOUND:
        return False
    if sighting.job is not None or sighting.unclear:
        return False
    return shows_all_jobs_of(record.user.uid, look) and look.begun_at > record.bound_at


def has_missing_tasks(record: JobRecord, sighting: SnapshotMatch, look: SnapshotIndex) -> bool:
    """Whether a look that shows all of its user's showed an array without tasks that nobody has seen end."""
    if record.final or sighting.job is None or not record.status.array_size:
        return False
    in_part = record.first_seen_late or not tells_all(record, sighting.job)
    return in_part and shows_all_jobs_of(record.user.uid, look)


def pressing(records: Iterable[JobRecord], now: datetime, settings: JobsSettings) -> bool | None:
    """True: something lives; False: only looked after; None: nothing to look for."""
    looked_after = False
    for record in records:
        if not record.final and record.stage is not Stage.UNCONFIRMED:
            return True
        looked_after |= record.stage is not Stage.UNCONFIRMED or _may_arrive(record, now, settings)
    return False if looked_after else None


def _time_of(noted: str | None) -> datetime | None:
    return None if noted is None else datetime.fromtimestamp(float(noted), UTC)


class Poller:
    """Looks, writes down what it saw, and starts the errands."""

    def __init__(self, context: Context, absences: MissingJobs, errands: Sequence[PollFollower]) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._workload = context.workload
        self._background = context.background
        self._absences = absences
        self._errands = errands
        self._asked = asyncio.Event()
        self._wanted = False  # a look, not only a glance
        self._took_s = 0.0
        self._faults = 0
        self._ended = float("-inf")
        self._looked = float("-inf")
        self._glanced: int | None = None
        self._calm = 0  # looks in a row that showed nothing new and left nothing open
        self._last_good = _time_of(context.store.facts.get(GOOD_LOOK_AT))
        self._noted = self._last_good
        self.bucket = schedule.Bucket(context.settings.reads_per_minute / 60, context.settings.read_burst)
        self.stale_since: datetime | None = None
        self._unseen_since: dict[int, datetime] = {}  # by uid: users whose jobs the last look did not show

    def stale_for(self, uid: int) -> datetime | None:
        """Since when this user's jobs have not been seen whole."""
        return self.stale_since or self._unseen_since.get(uid)

    def ask(self) -> None:
        """A look is wanted soon; many wishes are one look."""
        self._asked.set()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self._pause()
            await self.look()

    async def look(self) -> None:
        """One look, or a glance; a fault is a stale truth, not the end."""
        started = self._clock.monotonic()
        good = False
        try:
            good = await (self._look() if self._is_look_due() else self._look_if_it_moved())
        except (WorkloadManagerError, JournalError, TimeoutError) as fault:
            log.warning("the look at the queue failed: %s", fault)
        except Exception:  # what one odd record does to our code must not blind us for all the others
            log.exception("the look at the queue failed")
        self._ended = self._clock.monotonic()
        self._took_s = self._ended - started
        self._note(good=good)

    def _note(self, *, good: bool) -> None:
        now = self._clock.now()
        self._faults = 0 if good else self._faults + 1
        self._last_good = now if good else self._last_good
        self.stale_since = None if good else (self.stale_since or self._last_good or now)
        if good and (self._noted is None or (now - self._noted).total_seconds() >= NOTED_EVERY_S):
            self._noted = now
            self._background.start(GOOD_LOOK_AT, self._store.note(GOOD_LOOK_AT, str(now.timestamp())))

    def _is_look_due(self) -> bool:
        longest = schedule.longest(self._settings, accounting=self._absences.accounting)
        return self._wanted or self._calm < CALM or self._clock.monotonic() - self._looked >= longest

    async def _look_if_it_moved(self) -> bool:
        """A glance is compared with the last one, never with what looks have shown: they may be older."""
        job_ids = {record.job_id for record in self._store.index.watched() if record.job_id is not None}
        before = self._glanced
        self._glanced = await self._context.call(self._workload.glance(job_ids))
        if self._glanced is None:
            return await self._look()
        if self._glanced == before:
            return True
        await self.take_turn()
        return await self._look()

    async def _look(self) -> bool:
        begun_at, self._looked = self._clock.now(), self._clock.monotonic()
        self._wanted, calm_before, self._calm = False, self._calm, 0
        users = {record.user for record in self._store.index.watched()}
        wanted = wanted_filter(self._store.index)
        poll = await self._context.call(self._workload.poll(users=users, wanted=wanted))
        if poll.dropped:
            log.warning("%d records of the queue could not be read", poll.dropped)
        look = index_snapshot(poll, begun_at, self._store.index)
        sightings: dict[JobKey, SnapshotMatch] = {}

        def decide(record: JobRecord) -> JobRecord:
            sighting = sightings[record.key] = match(record, look)
            return after_poll(record, sighting, look, self._clock.now(), self._settings)

        concerned = self._concerned(look)
        changed = await self._store.change_free(concerned, decide)
        unseen = self._unseen(look, sightings)
        all_seen = look.complete and not unseen.whole and len(sightings) == len(concerned)
        if all_seen and not changed and all(record.at_rest for record in concerned):
            self._calm = calm_before + 1
        self._start_errands(look, sightings, unseen)
        self._note_unseen({user.uid for user in users}, look)
        return look.complete or bool(look.whole)

    def _note_unseen(self, uids: Iterable[int], look: SnapshotIndex) -> None:
        """Where each user's agent looks, one that does not answer makes its own user's jobs stale."""
        unseen = [uid for uid in uids if not shows_all_jobs_of(uid, look)]
        since = self._last_good or look.begun_at
        self._unseen_since = {uid: self._unseen_since.get(uid, since) for uid in unseen}

    def _concerned(self, look: SnapshotIndex) -> list[JobRecord]:
        marked = [record for mark in look.by_mark if (record := self._store.index.marked(mark)) is not None]
        return self._store.index.watched() + [record for record in marked if not record.watched]

    def _unseen(self, look: SnapshotIndex, sightings: Mapping[JobKey, SnapshotMatch]) -> MissingRecords:
        records = [record for key in sightings if (record := self._store.index.get(key)) is not None]
        return MissingRecords(
            [record for record in records if is_absent(record, sightings[record.key], look)],
            [record for record in records if has_missing_tasks(record, sightings[record.key], look)],
        )

    def _start_errands(
        self, look: SnapshotIndex, sightings: Mapping[JobKey, SnapshotMatch], unseen: MissingRecords
    ) -> None:
        due = self._absences.due(unseen)
        if any(due):
            self._background.start("absent jobs", self._investigate(due))
        for errand in self._errands:
            errand.after(look, sightings)

    async def _investigate(self, unseen: MissingRecords) -> None:
        await self.take_turn()
        await self._absences.investigate(unseen)

    # ------------------------------------------------------------------------------------------ the pace

    async def _pause(self) -> None:
        urgency = pressing(self._store.index.watched(), self._clock.now(), self._settings)
        if urgency is None:
            await self._asked.wait()
        else:
            await self._until_wanted(self._interval(pressing=urgency))
        if self._asked.is_set():
            await self._sleep_until(self._ended + schedule.soon(self._settings, self._took_s))
            self._wanted = True
        self._asked.clear()
        await self.take_turn(1.0 if self._is_look_due() else schedule.GLANCE)

    def _interval(self, *, pressing: bool) -> float:
        if not pressing:
            return self._settings.longest_interval_s
        return schedule.interval(
            self._settings, self._took_s, accounting=self._absences.accounting, faults=self._faults
        )

    async def _until_wanted(self, seconds: float) -> None:
        wanted = asyncio.ensure_future(self._asked.wait())
        try:
            await finishes_within(self._clock, self._ended + seconds - self._clock.monotonic(), wanted)
        finally:
            wanted.cancel()

    async def _sleep_until(self, moment: float) -> None:
        pause = moment - self._clock.monotonic()
        if pause > 0:
            await self._clock.sleep(pause)

    async def take_turn(self, cost: float = 1.0) -> None:
        """Wait for one of red-box's own reads to be due."""
        pause = self.bucket.reserve(self._clock.monotonic(), cost)
        if pause:
            await self._clock.sleep(pause)
