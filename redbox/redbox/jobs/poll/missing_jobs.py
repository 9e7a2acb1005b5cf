"""Jobs, and tasks of arrays, that the queue does not show: what history says, and when a job is lost.

Absence counts only in a complete look that began after the job was bound. Then the job is asked for singly,
then in the accounting, whose rows arrive late: for ten minutes its state is unknown, not lost. Without
accounting it is lost when two looks have missed it, and its outcome is unknown.

The queue forgets an array's tasks one by one. One that ended and was forgotten while nobody looked would
count as waiting for as long as the array lives: the accounting is asked for it, ever more rarely.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain

from redbox.core.domain import JobKey, UnixUser
from redbox.core.workload_manager import (
    AccountingSnapshot,
    Observation,
    WorkloadManagerError,
    shows_all_jobs_of,
)
from redbox.jobs.context import Context
from redbox.jobs.job_actions import with_warning
from redbox.jobs.poll.schedule import CALL_SHARE
from redbox.jobs.queue_snapshot import (
    SnapshotIndex,
    SnapshotMatch,
    bind,
    is_same_without_mark,
    match,
    sort_observations,
)
from redbox.jobs.record.record import JobRecord
from redbox.jobs.record.state_machine import ENDS, ended_unseen, lost, observed, phase_of, told_of
from redbox.jobs.settings import JobsSettings

log = logging.getLogger(__name__)

SINCE_SLACK = timedelta(hours=1)  # the clocks of two hosts
TASKS_UNKNOWN = (
    "red-box first saw this array when Slurm may have forgotten tasks of it that had ended. This cluster "
    "keeps no accounting that could tell of them: they are not counted."
)
LOOK_AGAIN_S = (2.0, 60.0)  # a job that stays away is asked for ever more rarely


@dataclass(frozen=True, slots=True)
class MissingRecords:
    """What a complete look did not show: whole jobs, and tasks of arrays."""

    whole: Sequence[JobRecord]
    in_part: Sequence[JobRecord]

    def __iter__(self) -> Iterator[JobRecord]:
        return chain(self.whole, self.in_part)

    def only(self, counts: Callable[[JobRecord], bool]) -> MissingRecords:
        """Those of them that count."""
        return MissingRecords([*filter(counts, self.whole)], [*filter(counts, self.in_part)])


@dataclass(frozen=True, slots=True)
class LookupTimes:
    """When a job was first and last asked for, since it was last seen whole."""

    first: float
    last: float


@dataclass(frozen=True, slots=True)
class AbsenceEvidence:
    """What was found of an absent job elsewhere than in the queue."""

    row: Observation | None
    accounting: bool  # there is one, whether or not it knew the job
    stranger: bool


def latest_row(record: JobRecord, rows: Iterable[Observation]) -> Observation | None:
    """The job's latest run in accounting: the uid must match, and the mark or the moment of submit."""
    own = [
        row
        for row in rows
        if row.uid == record.user.uid
        and (row.mark == record.mark or (row.job_id == record.job_id and is_same_without_mark(record, row)))
    ]
    return max(
        own,
        key=lambda row: (row.restarts, row.started_at or row.submitted_at or record.created_at),
        default=None,
    )


def after_absence(
    record: JobRecord, evidence: AbsenceEvidence, now: datetime, settings: JobsSettings
) -> JobRecord:
    """The record after a complete look did not show it, and this was found instead."""
    row = evidence.row
    if row is not None and phase_of(row.state) in ENDS.values():
        told = observed(record, replace(row, live=False), now, final_after_s=settings.final_after_s)
        if told.final:
            return told
        record = replace(told, absent_since=record.absent_since)  # rows of some tasks are not there yet
    since = record.absent_since or now
    waited = (now - since).total_seconds()
    limit = settings.rows_late_s if evidence.accounting else settings.shortest_interval_s / 2
    if waited < limit:
        return replace(record, absent_since=since)
    return lost(record, now, _why_lost(record, evidence))


def _why_lost(record: JobRecord, evidence: AbsenceEvidence) -> str:
    if evidence.stranger:
        what = f"Lost: Slurm has given the job id {record.job_id} to another job, which was not touched"
    else:
        what = f"Lost: Slurm no longer knows job {record.job_id}"
    if not evidence.accounting:
        return f"{what}. Its outcome is unknown: this cluster keeps no accounting."
    if evidence.row is not None:
        never = f"never saw it end (last state {evidence.row.state})"
        if phase_of(evidence.row.state) in ENDS.values():
            never = "never saw all its tasks end"
        return f"{what}, and its accounting {never}. Its outcome is unknown."
    young = not record.confirmed
    hint = " A slurmctld that dies within seconds of a submit forgets the job." if young else ""
    return f"{what}, and its accounting has no record of it. Its outcome is unknown.{hint}"


class MissingJobs:
    """Asks for absent jobs, all in one call, and writes down what it learns."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._workload = context.workload
        self._asked: dict[JobKey, LookupTimes] = {}
        self._tasks_not_before = float("-inf")  # arrays are long to tell of
        self.accounting = True

    def due(self, unseen: MissingRecords) -> MissingRecords:
        """Those that it is time to ask for."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        self._asked = {r.key: self._asked[r.key] for r in unseen if r.key in self._asked}
        whole = [record for record in unseen.whole if self._rested(record, monotonic) >= _pause(record, now)]
        if monotonic < self._tasks_not_before:
            return MissingRecords(whole, ())
        in_part = [r for r in unseen.in_part if self._rested(r, monotonic) >= self._patience(r)]
        return MissingRecords(whole, in_part)

    def _rested(self, record: JobRecord, monotonic: float) -> float:
        asked = self._asked.get(record.key)
        return float("inf") if asked is None else monotonic - asked.last

    def _patience(self, record: JobRecord) -> float:
        """Without bound: what the accounting did not tell in a day it will hardly ever tell."""
        asked = self._asked.get(record.key)
        return 0.0 if asked is None else max(LOOK_AGAIN_S[0], (asked.last - asked.first) / 4)

    async def investigate(self, unseen: MissingRecords) -> None:
        """Singly, then in history; faults leave everything unknown."""
        began = self._clock.monotonic()
        for key in [record.key for record in unseen]:
            self._asked[key] = LookupTimes(self._asked[key].first if key in self._asked else began, began)
        try:
            shown = await self._shown_singly([*unseen])
            unseen = unseen.only(lambda record: shows_all_jobs_of(record.user.uid, shown))
            missing = [record for record in unseen.whole if match(record, shown).job is None]
            missing += unseen.in_part
            history = await self._history(missing) if missing else None
        except (WorkloadManagerError, TimeoutError) as fault:
            log.warning("absent jobs could not be asked for: %s", fault)
            return
        ended = self._clock.monotonic()
        self._tasks_not_before = ended + CALL_SHARE * (ended - began)
        await self._note(unseen, shown, history)

    async def _shown_singly(self, records: Sequence[JobRecord]) -> SnapshotIndex:
        ids = {record.job_id for record in records if record.job_id}
        begun_at = self._clock.now()
        found = await self._context.call(self._workload.find_live(sorted(ids), users=_users_of(records)))
        by_mark, by_id = sort_observations(found.jobs, self._store.index, set(ids))
        return SnapshotIndex(begun_at, found.complete, by_mark=by_mark, by_id=by_id, whole=found.whole)

    async def _history(self, records: Sequence[JobRecord]) -> AccountingSnapshot:
        ids = sorted({record.job_id for record in records if record.job_id})
        since = min(record.created_at for record in records) - SINCE_SLACK
        history = await self._context.call(self._workload.history(ids, since=since, users=_users_of(records)))
        self.accounting = history.available
        return history

    async def _note(
        self, unseen: MissingRecords, shown: SnapshotIndex, history: AccountingSnapshot | None
    ) -> None:
        asked = {record.key: record.job_id for record in unseen}
        in_part = {record.key for record in unseen.in_part}

        def decide(record: JobRecord) -> JobRecord:
            if record.job_id != asked[record.key] or not record.watched:
                return record
            sighting = match(record, shown)
            if sighting.job is None:
                return self._missed(record, sighting, history)
            if record.key in in_part:
                return self._heard_of_tasks(record, sighting.job, history)
            return self._found(record, sighting.job)

        await self._store.change_free([*unseen], decide)

    def _found(self, record: JobRecord, job: Observation) -> JobRecord:
        now = self._clock.now()
        return observed(bind(record, job.job_id, now), job, now, final_after_s=self._settings.final_after_s)

    def _heard_of_tasks(
        self, record: JobRecord, job: Observation, history: AccountingSnapshot | None
    ) -> JobRecord:
        """What the queue shows of them is left to looks: this may be older than the last one."""
        if history is None:
            return record
        row = latest_row(record, history.jobs)
        whole = shows_all_jobs_of(record.user.uid, history)
        heard = row is not None and (whole or not record.first_seen_late)
        if history.available and not heard:
            return record
        if row is None and record.first_seen_late:
            record = with_warning(record, TASKS_UNKNOWN)
        ended = ended_unseen(job, row) if row is not None else ()
        return told_of(record, ended, self._clock.now(), final_after_s=self._settings.final_after_s)

    def _missed(
        self, record: JobRecord, sighting: SnapshotMatch, history: AccountingSnapshot | None
    ) -> JobRecord:
        if history is None:
            return record
        row = latest_row(record, history.jobs)
        if row is None and history.available and not shows_all_jobs_of(record.user.uid, history):
            return replace(record, absent_since=record.absent_since or self._clock.now())
        evidence = AbsenceEvidence(row, history.available, stranger=sighting.stranger is not None)
        return after_absence(record, evidence, self._clock.now(), self._settings)


def _users_of(records: Iterable[JobRecord]) -> frozenset[UnixUser]:
    return frozenset(record.user for record in records)


def _pause(record: JobRecord, now: datetime) -> float:
    shortest, longest = LOOK_AGAIN_S
    if record.absent_since is None:
        return 0.0
    return min(longest, max(shortest, (now - record.absent_since).total_seconds() / 4))
