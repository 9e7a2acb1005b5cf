"""The poller: one poll of the queue for all jobs, as often as Slurm can bear, none while no job lives.

            +------------------------------- pause <----------------------------+
            v                (interval, or sooner on request)                   |
   poll due? --no--> probe: same states as the last probe? --yes--------------+
      | yes             | no                                                    |
      v                 v                                                       |
   poll the queue --> match jobs with records --> change records --> missing jobs, followers
      |                                                                         |
      +-- fails or is incomplete: records stay, `stale_since` begins ---------->+

A probe is one cheap call that returns a fingerprint of all states. It replaces the poll after three polls
without any change; the next poll follows as soon as a state has changed, or the last one is too old.

A poll that shows all jobs of some users only makes the others stale. The time of the last good poll is in
the journal, to the minute, for the next server. After each poll its followers (cancels, unconfirmed submits,
credentials) and the lookup of missing jobs run as background tasks, so that a user whose agent hangs does
not delay the next poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from redbox.core.clock import is_set_within
from redbox.core.domain import JobKey
from redbox.core.observations import Observation
from redbox.core.token_buckets import Rate, TokenBucket
from redbox.core.workload_manager import WorkloadManagerError, shows_all_jobs_of
from redbox.jobs.context import Context, JobsComponent
from redbox.jobs.errors import JournalError
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
from redbox.jobs.record.record import JobRecord, Stage, with_warning
from redbox.jobs.record.state_machine import StateMachine, dropped_from_queue, is_unchanged
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.journal_facts import time_in

log = structlog.get_logger(__name__)

LAST_GOOD_POLL = "last good poll"  # a name in the journal
NOTED_EVERY_S = 60.0
UNCHANGED_POLLS = 3  # polls in a row without any change: then probes replace them
DUPLICATE = "Duplicate: job {} carries the same mark; it is cancelled if it still waits."
MARK_CHANGED = (
    "The job's comment was changed: red-box still follows it, but can no longer act on it. Use scancel."
)


class PollFollower(Protocol):
    """Does what a poll shows to be necessary."""

    def follow(self, record: JobRecord, found: SnapshotMatch, snapshot: SnapshotIndex) -> None: ...


def after_poll(
    record: JobRecord, found: SnapshotMatch, snapshot: SnapshotIndex, now: datetime, machine: StateMachine
) -> JobRecord:
    """The record after this poll. Pure; `missing_jobs` decides what absence means for a living job."""
    for other in () if record.held_retry else found.duplicates:
        record = with_warning(record, DUPLICATE.format(other.job_id))
    job = found.job
    if job is not None:
        is_restarted = bool(snapshot.boot_time) and record.boot_time != snapshot.boot_time
        # A start that has ended does not run again; the boot time may be known later than the restart.
        if is_forgotten_end(record, job) and (is_restarted or not machine.has_ended(job.state)):
            return record
        if is_restarted:
            record = replace(record, boot_time=snapshot.boot_time)
        if not found.mark_changed and is_unchanged(record, job):
            return record
        if is_first_seen_late(record, job, snapshot, machine.settings):
            record = replace(record, first_seen_late=True)
        record = machine.observe(bind(record, job.job_id, now), job, now)
        return with_warning(record, MARK_CHANGED) if found.mark_changed else record
    shows_absence = shows_all_jobs_of(record.user.uid, snapshot) and not found.unclear
    if record.final and record.in_queue and shows_absence:
        was_unanswered = record.unanswered_at is not None or record.stage is Stage.NEVER
        if not (was_unanswered and _may_still_arrive(record, now, machine.settings)):
            return dropped_from_queue(record)
    return record


def is_forgotten_end(record: JobRecord, job: Observation) -> bool:
    """Whether a restarted controller shows a run of which an end was seen as it was before that end.

    It takes minutes until it misses the job on its node, and may then run it again: that is the next run.
    """
    status = record.status
    same_run = status.started_at is not None and status.started_at == job.started_at
    return record.end_was_seen and same_run and status.restarts == job.restarts and not job.array_size


def _may_still_arrive(record: JobRecord, now: datetime, settings: JobsSettings) -> bool:
    return now - record.last_submit_at < timedelta(seconds=settings.watch_unconfirmed_s)


def is_first_seen_late(
    record: JobRecord, job: Observation, snapshot: SnapshotIndex, settings: JobsSettings
) -> bool:
    """Whether the queue may have forgotten tasks of this array before any poll."""
    is_new = bool(job.array_size) and not record.status.array_size
    age = snapshot.begun_at - (job.submitted_at or record.created_at)
    return is_new and age.total_seconds() > settings.min_job_age_s


def is_absent(record: JobRecord, found: SnapshotMatch, snapshot: SnapshotIndex) -> bool:
    """Whether a poll that began after the job was bound, and shows all of its user's, did not show it."""
    if record.final or record.bound_at is None or record.stage is not Stage.BOUND:
        return False
    if found.job is not None or found.unclear:
        return False
    return shows_all_jobs_of(record.user.uid, snapshot) and snapshot.begun_at > record.bound_at


def has_missing_tasks(
    record: JobRecord, found: SnapshotMatch, snapshot: SnapshotIndex, machine: StateMachine
) -> bool:
    """Whether a poll that shows all of the user's jobs lacks tasks of this array that no poll saw end."""
    if record.final or found.job is None or not record.status.array_size:
        return False
    in_part = record.first_seen_late or not machine.shows_all_tasks(record, found.job)
    return in_part and shows_all_jobs_of(record.user.uid, snapshot)


def is_settled(record: JobRecord, found: SnapshotMatch) -> bool:
    """Whether the same observation of this unchanged record would lead to nothing, however often it is shown.

    Pods, dependants, arrays and credentials are followed poll by poll.
    """
    plain = not (record.is_pod or record.dependencies or record.credentials or record.status.array_size)
    alone = found.job is not None and not found.duplicates and not found.mark_changed
    return plain and alone and record.at_rest and not record.final


def urgency(records: Iterable[JobRecord], now: datetime, settings: JobsSettings) -> bool | None:
    """True: a job lives; False: some may still change; None: there is nothing to poll for."""
    may_change = False
    for record in records:
        if not record.final and record.stage is not Stage.UNCONFIRMED:
            return True
        may_change |= record.stage is not Stage.UNCONFIRMED or _may_still_arrive(record, now, settings)
    return False if may_change else None


class Poller(JobsComponent):
    """Polls the queue, changes the records, and starts what follows."""

    def __init__(
        self, context: Context, missing_jobs: MissingJobs, followers: Sequence[PollFollower]
    ) -> None:
        super().__init__(context)
        self._missing_jobs = missing_jobs
        self._followers = followers
        self._requested = context.poll_requested
        self._full_poll_requested = False
        self._next_poll = asyncio.Event()  # set at the end of the poll that begins next
        self._took_s = 0.0
        self._faults = 0
        self._ended = float("-inf")
        self._polled = float("-inf")
        self._last_probe: int | None = None
        self._unchanged_polls = 0  # in a row, without changes and without anything left to decide
        self._last_good = time_in(context.store.facts, LAST_GOOD_POLL)
        self._noted = self._last_good
        reads = Rate(context.settings.reads_per_minute / 60, context.settings.read_burst)
        self.bucket = TokenBucket(reads)
        self.stale_since: datetime | None = None
        self._users_stale_since: dict[int, datetime] = {}  # by uid: whose jobs the last poll did not show
        self._settled: dict[int, Observation] = {}  # by the revision of a settled record

    def stale_for(self, uid: int) -> datetime | None:
        """Since when no poll has shown all jobs of this user."""
        return self.stale_since or self._users_stale_since.get(uid)

    async def run(self) -> None:
        """Poll for ever."""
        while True:
            await self._pause()
            await self.poll()

    async def poll_anew(self) -> None:
        """Wait for a poll that begins from now on; also for one that fails."""
        ended = self._next_poll
        self._requested.set()
        await ended.wait()

    async def poll(self) -> None:
        """One poll, or a probe; after a failure the records stay as they are, and are stale."""
        started = self._clock.monotonic()
        good, answered = False, True
        try:
            good = await (self._poll() if self._is_poll_due() else self._poll_if_changed())
        except (WorkloadManagerError, JournalError, TimeoutError) as fault:
            log.warning("polling the queue failed: %s", fault)
            answered = isinstance(fault, JournalError)
        except Exception:  # a fault of ours over one odd record must not stop the polls of all the others
            log.exception("polling the queue failed")
        self._ended = self._clock.monotonic()
        self._took_s = self._ended - started
        self._missing_jobs.note_poll(answered=answered)
        self._note_result(good=good)

    def _note_result(self, *, good: bool) -> None:
        now = self._clock.now()
        self._faults = 0 if good else self._faults + 1
        if not good:
            self._missing_jobs.controller_failed()
        self._last_good = now if good else self._last_good
        self.stale_since = None if good else (self.stale_since or self._last_good or now)
        if good and (self._noted is None or (now - self._noted).total_seconds() >= NOTED_EVERY_S):
            self._noted = now
            self._background.start(LAST_GOOD_POLL, self._store.note(LAST_GOOD_POLL, str(now.timestamp())))

    def _is_poll_due(self) -> bool:
        longest = schedule.longest(self._settings, accounting=self._missing_jobs.accounting)
        too_old = self._clock.monotonic() - self._polled >= longest
        return self._full_poll_requested or self._unchanged_polls < UNCHANGED_POLLS or too_old

    async def _poll_if_changed(self) -> bool:
        """A probe is compared with the last probe, never with records, which may be older."""
        job_ids = {record.job_id for record in self._store.index.watched() if record.job_id is not None}
        before = self._last_probe
        self._last_probe = await self._context.call(self._workload.probe(job_ids))
        if self._last_probe is None:
            return await self._poll()
        if self._last_probe == before:
            return True
        await self.take_turn()
        return await self._poll()

    async def _poll(self) -> bool:
        """Whether it showed all jobs of anybody."""
        ended, self._next_poll = self._next_poll, asyncio.Event()
        try:
            return await self._change_records()
        finally:
            ended.set()

    async def _change_records(self) -> bool:
        """Poll and change all records that it concerns; whether it showed all jobs of anybody."""
        begun_at, self._polled = self._clock.now(), self._clock.monotonic()
        unchanged_before = self._unchanged_polls
        self._full_poll_requested, self._unchanged_polls = False, 0
        index = self._store.index
        users = {record.user for record in index.watched()}
        queue = await self._context.call(self._workload.poll(users=users, wanted=wanted_filter(index)))
        if queue.dropped:
            log.warning("%d records of the queue could not be read", queue.dropped)
        snapshot = index_snapshot(queue, begun_at, index)
        matches: dict[JobKey, SnapshotMatch] = {}

        def decide(record: JobRecord) -> JobRecord:
            found = matches[record.key] = match(record, snapshot)
            return after_poll(record, found, snapshot, self._clock.now(), self._machine)

        marked = [record for mark in snapshot.by_mark if (record := index.marked(mark)) is not None]
        watched = index.watched()
        as_before = {record.revision for record in watched if self._is_as_before(record, snapshot)}
        concerned = [record for record in watched if record.revision not in as_before]
        concerned += [record for record in marked if not record.watched]
        newest = index.number
        changed = await self._store.change_free(concerned, decide)
        shown = [(record, found) for key, found in matches.items() if (record := index.get(key)) is not None]
        missing = MissingRecords(
            [record for record, found in shown if is_absent(record, found, snapshot)],
            [record for record, found in shown if has_missing_tasks(record, found, snapshot, self._machine)],
        )
        all_shown = snapshot.complete and not missing.whole and len(matches) == len(concerned)
        if all_shown and not changed and all(record.at_rest for record in concerned):
            self._unchanged_polls = unchanged_before + 1
        self._settled = {revision: self._settled[revision] for revision in as_before}
        for record, found in shown:
            if found.job is not None and record.revision <= newest and is_settled(record, found):
                self._settled[record.revision] = found.job
        due = self._missing_jobs.due(missing)
        if any(due):
            self._background.start("absent jobs", self._investigate(due))
        for record, found in shown:
            for follower in self._followers:
                follower.follow(record, found, snapshot)
        self._note_hidden_users({user.uid for user in users}, snapshot)
        return snapshot.complete or bool(snapshot.whole)

    def _is_as_before(self, record: JobRecord, snapshot: SnapshotIndex) -> bool:
        """Whether it is settled, and the poll shows its row unchanged: then nothing follows, as last time."""
        before = self._settled.get(record.revision)
        shown = snapshot.by_mark.get(record.mark, ())
        same_controller = not snapshot.boot_time or snapshot.boot_time == record.boot_time
        return before is not None and len(shown) == 1 and shown[0] is before and same_controller

    def _note_hidden_users(self, uids: Iterable[int], snapshot: SnapshotIndex) -> None:
        """If users' own agents poll, one that does not answer makes its own user's jobs stale."""
        hidden = [uid for uid in uids if not shows_all_jobs_of(uid, snapshot)]
        since = self._last_good or snapshot.begun_at
        self._users_stale_since = {uid: self._users_stale_since.get(uid, since) for uid in hidden}

    async def _investigate(self, missing: MissingRecords) -> None:
        await self.take_turn()
        await self._missing_jobs.investigate(missing)

    # ------------------------------------------------------------------------------------------ the pace

    async def _pause(self) -> None:
        """Until the next poll or probe is due, or requested, and its turn has come."""
        urgent = urgency(self._store.index.watched(), self._clock.now(), self._settings)
        if urgent is None:
            await self._requested.wait()
        else:
            due = self._ended + self._interval(urgent=urgent)
            await is_set_within(self._clock, due - self._clock.monotonic(), self._requested)
        if self._requested.is_set():
            await self._sleep_until(self._ended + schedule.soon(self._settings, self._took_s))
            self._full_poll_requested = True
        self._requested.clear()
        await self.take_turn(1.0 if self._is_poll_due() else schedule.GLANCE)

    def _interval(self, *, urgent: bool) -> float:
        if not urgent:
            return self._settings.longest_interval_s
        return schedule.interval(
            self._settings, self._took_s, accounting=self._missing_jobs.accounting, faults=self._faults
        )

    async def _sleep_until(self, deadline: float) -> None:
        pause = deadline - self._clock.monotonic()
        if pause > 0:
            await self._clock.sleep(pause)

    async def take_turn(self, cost: float = 1.0) -> None:
        """Wait until one of red-box's own reads is due."""
        pause = self.bucket.reserve(self._clock.monotonic(), cost)
        if pause:
            await self._clock.sleep(pause)
