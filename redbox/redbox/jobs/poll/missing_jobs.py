"""Jobs, and tasks of arrays, that the queue does not show: what accounting shows, and when a job is lost.

Absence counts only in a complete poll that began after the job was bound. Then the job is queried singly,
then in the accounting, whose rows arrive late: for ten minutes its state is unknown, not lost. Without
accounting it is lost after two polls without it, and its outcome is unknown.

The queue forgets an array's tasks one by one. A task that ended and was forgotten between two polls would
count as waiting for as long as the array lives: the accounting is queried for it, ever more rarely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain

import structlog

from redbox.core.domain import JobKey, UnixUser
from redbox.core.observations import Observation
from redbox.core.workload_manager import AccountingSnapshot, WorkloadManagerError, shows_all_jobs_of
from redbox.jobs.context import Context, JobsComponent
from redbox.jobs.poll.output_lookups import OutputLookups
from redbox.jobs.poll.schedule import CALL_SHARE
from redbox.jobs.queue_snapshot import (
    SnapshotIndex,
    SnapshotMatch,
    bind,
    is_as_submitted,
    is_same_without_mark,
    match,
    sort_observations,
)
from redbox.jobs.record.forgotten import (
    UNCHECKED_S,
    RestartEvidence,
    forgotten,
    output_of,
    sign_of_start,
    was_shown_to_start,
)
from redbox.jobs.record.record import JobRecord, with_warning
from redbox.jobs.record.state_machine import StateMachine, lost
from redbox.jobs.settings import JobsSettings

log = structlog.get_logger(__name__)

TASKS_UNKNOWN = (
    "red-box first saw this array when Slurm may have forgotten tasks of it that had ended. This cluster "
    "keeps no accounting that could show them: they are not counted."
)
UNSAVED = timedelta(minutes=2)  # slurmctld saves every 5 s; the rest is for its restart
MOST_AT_ONCE, FEWEST_AT_ONCE = 10_000, 500  # jobs in one query; fewer after one that the accounting left open
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0  # a job that stays missing is queried ever more rarely


@dataclass(frozen=True, slots=True)
class MissingRecords:
    """Records that a complete poll did not show: whole jobs, and arrays without some of their tasks."""

    whole: Sequence[JobRecord]
    in_part: Sequence[JobRecord]

    def __iter__(self) -> Iterator[JobRecord]:
        return chain(self.whole, self.in_part)

    def only(self, counts: Callable[[JobRecord], bool]) -> MissingRecords:
        return MissingRecords([*filter(counts, self.whole)], [*filter(counts, self.in_part)])


@dataclass(frozen=True, slots=True)
class LookupTimes:
    """When a job was first and last queried, since a poll last showed it whole."""

    first: float
    last: float


@dataclass(frozen=True, slots=True)
class AbsenceEvidence:
    """What was found of a missing job elsewhere than in the queue."""

    row: Observation | None
    accounting: bool  # there is accounting, whether or not it has the job
    stranger: bool  # its id belongs to another job
    restart: RestartEvidence | None = None  # None: the controller was not restarted since it showed the job


def latest_row(record: JobRecord, rows: Iterable[Observation]) -> Observation | None:
    """The job's latest run in accounting: the uid must match, and the mark or the time of submit."""
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
    record: JobRecord, evidence: AbsenceEvidence, now: datetime, machine: StateMachine
) -> JobRecord:
    """The record after a complete poll did not show its job, and this was found instead."""
    row, settings = evidence.row, machine.settings
    end = row if row is not None and machine.has_ended(row.state) else None
    if end is not None:
        ended = machine.observe(record, replace(end, live=False), now)
        if ended.final:
            return ended
        record = replace(ended, absent_since=record.absent_since)  # rows of some tasks are still to come
    since = record.absent_since or now
    # An end in the accounting was not forgotten; that of a pod waits for its last report.
    if evidence.restart is not None and (record.status.array_size or end is None):
        return _after_restart(replace(record, absent_since=since), evidence, evidence.restart, now, settings)
    limit = settings.rows_late_s if evidence.accounting else settings.shortest_interval_s / 2
    if (now - since).total_seconds() < limit:
        return replace(record, absent_since=since)
    return lost(record, now, _why_lost(record, evidence, machine))


def may_be_unsaved(record: JobRecord, now: datetime, silent_since: datetime | None = None) -> bool:
    """Whether its controller ended soon after its first submit: an older job was saved before.

    That is when the job was first absent, or when the polls before that began to fail. A job whose submit had
    no answer may be bound long after it was made.
    """
    times = (record.bound_at, record.last_submit_at, record.unanswered_at)
    submitted_at = min(time for time in times if time is not None)
    absent_since = record.absent_since or now
    if silent_since is not None and submitted_at <= silent_since < absent_since:
        absent_since = silent_since
    return absent_since - submitted_at <= UNSAVED


def _after_restart(
    record: JobRecord,
    evidence: AbsenceEvidence,
    restart: RestartEvidence,
    now: datetime,
    settings: JobsSettings,
) -> JobRecord:
    """Forgotten, once the nodes have registered with the restarted slurmctld and ended what ran there."""
    if restart.answers_for_s < settings.restarted_for_s:
        return record
    unchecked = restart.output_exists is None and output_of(record) is not None
    absent_for = now - (record.absent_since or now)
    if unchecked and not was_shown_to_start(record) and absent_for.total_seconds() < UNCHECKED_S:
        return record
    sign = sign_of_start(record, evidence.row, output_exists=restart.output_exists)
    return forgotten(record, now, _what_of_id(record, evidence), sign, accounting=evidence.accounting)


def _what_of_id(record: JobRecord, evidence: AbsenceEvidence) -> str:
    if evidence.stranger:
        return f"Lost: Slurm has given the job id {record.job_id} to another job, which was not touched"
    return f"Lost: Slurm no longer has job {record.job_id}"


def _why_lost(record: JobRecord, evidence: AbsenceEvidence, machine: StateMachine) -> str:
    what = _what_of_id(record, evidence)
    if not evidence.accounting:
        return f"{what}. Its outcome is unknown: this cluster keeps no accounting."
    if evidence.row is not None:
        missing = f"does not show its end (last state {evidence.row.state})"
        if machine.has_ended(evidence.row.state):
            missing = "does not show the end of all its tasks"
        return f"{what}, and its accounting {missing}. Its outcome is unknown."
    hint = "" if record.confirmed else " A slurmctld that dies within seconds of a submit forgets the job."
    return f"{what}, and its accounting has no record of it. Its outcome is unknown.{hint}"


class MissingJobs(JobsComponent):
    """Queries missing jobs, all in one call, and records the results."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._lookups: dict[JobKey, LookupTimes] = {}
        self._silent_since: datetime | None = None  # since when the controller has answered no poll
        self._silences: dict[JobKey, datetime | None] = {}  # right before the poll that first missed a job
        self._tasks_not_before = float("-inf")  # rows of large arrays take the accounting long
        self._boot_time = ""
        self._answers_since = float("-inf")  # since when the controller of this boot time answers
        self._outputs = OutputLookups(context)
        self._at_once = MOST_AT_ONCE
        self.accounting = True

    def due(self, missing: MissingRecords) -> MissingRecords:
        """Those whose next query is due: of many, the ones that were queried longest ago."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        self._lookups = {r.key: self._lookups[r.key] for r in missing if r.key in self._lookups}
        self._silences = {r.key: self._silences.get(r.key, self._silent_since) for r in missing.whole}
        whole = [
            record for record in missing.whole if self._since_lookup(record, monotonic) >= _pause(record, now)
        ]
        whole.sort(key=lambda record: self._since_lookup(record, monotonic), reverse=True)
        del whole[self._at_once :]
        if monotonic < self._tasks_not_before:
            return MissingRecords(whole, ())
        in_part = [r for r in missing.in_part if self._since_lookup(r, monotonic) >= self._pause_of_tasks(r)]
        return MissingRecords(whole, in_part)

    def _since_lookup(self, record: JobRecord, monotonic: float) -> float:
        lookup = self._lookups.get(record.key)
        return float("inf") if lookup is None else monotonic - lookup.last

    def _pause_of_tasks(self, record: JobRecord) -> float:
        """Without bound: rows that the accounting did not have in a day will hardly ever come."""
        lookup = self._lookups.get(record.key)
        return 0.0 if lookup is None else max(SHORTEST_PAUSE_S, (lookup.last - lookup.first) / 4)

    async def investigate(self, missing: MissingRecords) -> None:
        """Query the jobs singly, then in accounting; after a failure everything stays unknown."""
        began = self._clock.monotonic()
        for key in [record.key for record in missing]:
            self._lookups[key] = LookupTimes(
                self._lookups[key].first if key in self._lookups else began, began
            )
        try:
            boot_time = await self._current_boot_time() if missing.whole else ""
            shown = await self._find_live([*missing])
            missing = missing.only(lambda record: shows_all_jobs_of(record.user.uid, shown))
            absent = [record for record in missing.whole if match(record, shown).job is None]
            absent += missing.in_part
        except (WorkloadManagerError, TimeoutError) as fault:
            log.warning("missing jobs could not be queried: %s", fault)
            self.controller_failed()
            return
        history = await self._history(absent) if absent else None
        restarts = await self._restarts(absent, history, boot_time)
        ended = self._clock.monotonic()
        self._tasks_not_before = ended + CALL_SHARE * (ended - began)
        await self._record_results(missing, shown, history, restarts)

    def controller_failed(self) -> None:
        """A controller that does not answer has not answered for 15 s when it does again."""
        self._boot_time = ""
        self._workload.expire_boot_time()

    def note_poll(self, *, answered: bool) -> None:
        """After each poll: whether the controller answered it."""
        self._silent_since = None if answered else (self._silent_since or self._clock.now())

    async def _current_boot_time(self) -> str:
        boot_time = await self._context.call(self._workload.boot_time())
        if boot_time != self._boot_time:
            self._boot_time, self._answers_since = boot_time, self._clock.monotonic()
        return boot_time

    async def _restarts(
        self, absent: Sequence[JobRecord], history: AccountingSnapshot | None, boot_time: str
    ) -> dict[JobKey, RestartEvidence]:
        """For each absent job that a controller of another boot time showed last."""
        now = self._clock.now()
        restarted = [
            record
            for record in absent
            if boot_time
            and record.boot_time not in {"", boot_time}
            and may_be_unsaved(record, now, self._silences.get(record.key))
        ]
        answers_for_s = self._clock.monotonic() - self._answers_since
        due = history is not None and answers_for_s >= self._settings.restarted_for_s
        unstarted = [record for record in restarted if due and not was_shown_to_start(record)]
        exist = await self._outputs.exist(unstarted)
        return {record.key: RestartEvidence(answers_for_s, exist.get(record.key)) for record in restarted}

    async def _find_live(self, records: Sequence[JobRecord]) -> SnapshotIndex:
        ids = {record.job_id for record in records if record.job_id}
        begun_at = self._clock.now()
        found = await self._context.call(self._workload.find_live(sorted(ids), users=_users_of(records)))
        by_mark, by_id = sort_observations(found.jobs, self._store.index, set(ids))
        return SnapshotIndex(begun_at, found.complete, by_mark=by_mark, by_id=by_id, whole=found.whole)

    async def _history(self, records: Sequence[JobRecord]) -> AccountingSnapshot:
        ids = sorted({record.job_id for record in records if record.job_id})
        query = self._workload.history(ids, users=_users_of(records))
        try:
            history = await self._context.call(query)
        except (WorkloadManagerError, TimeoutError) as fault:
            log.warning("missing jobs could not be looked up in the accounting: %s", fault)
            self._at_once = max(FEWEST_AT_ONCE, len(records) // 2)
            return AccountingSnapshot((), complete=False)
        self._at_once = min(MOST_AT_ONCE, 2 * self._at_once)
        self.accounting = history.available
        return history

    async def _record_results(
        self,
        missing: MissingRecords,
        shown: SnapshotIndex,
        history: AccountingSnapshot | None,
        restarts: Mapping[JobKey, RestartEvidence],
    ) -> None:
        def identity(record: JobRecord) -> tuple[object, ...]:
            return record.job_id, record.boot_time, record.run, record.phase

        queried = {record.key: identity(record) for record in missing}
        in_part = {record.key for record in missing.in_part}

        def decide(record: JobRecord) -> JobRecord:
            if identity(record) != queried[record.key] or not record.watched:
                return record
            found = match(record, shown)
            if found.job is None:
                return self._after_absence(record, found, history, restarts.get(record.key))
            if record.key in in_part:
                return self._with_task_ends(record, found.job, history)
            now = self._clock.now()
            return self._machine.observe(bind(record, found.job.job_id, now), found.job, now)

        await self._store.change_free([*missing], decide)

    def _with_task_ends(
        self, record: JobRecord, job: Observation, history: AccountingSnapshot | None
    ) -> JobRecord:
        """Only accounting's rows are used: `job` may be older than the last poll."""
        if history is None:
            return record
        row = latest_row(record, history.jobs)
        if row is not None and not is_as_submitted(record, row):
            return record
        whole = shows_all_jobs_of(record.user.uid, history)
        if history.available and (row is None or (record.first_seen_late and not whole)):
            return record
        if row is None and record.first_seen_late:
            record = with_warning(record, TASKS_UNKNOWN)
        ended = self._machine.task_ends(job, row) if row is not None else ()
        return self._machine.with_task_ends(record, ended, self._clock.now())

    def _after_absence(
        self,
        record: JobRecord,
        found: SnapshotMatch,
        history: AccountingSnapshot | None,
        restart: RestartEvidence | None,
    ) -> JobRecord:
        if history is None:
            return record
        row = latest_row(record, history.jobs)
        undecided = row is None or (restart is not None and not self._machine.has_ended(row.state))
        hidden = history.available and not shows_all_jobs_of(record.user.uid, history)
        if (undecided and hidden) or (row is not None and not is_as_submitted(record, row)):
            return replace(record, absent_since=record.absent_since or self._clock.now())
        evidence = AbsenceEvidence(row, history.available, found.stranger is not None, restart)
        return after_absence(record, evidence, self._clock.now(), self._machine)


def _users_of(records: Iterable[JobRecord]) -> frozenset[UnixUser]:
    return frozenset(record.user for record in records)


def _pause(record: JobRecord, now: datetime) -> float:
    if record.absent_since is None:
        return 0.0
    return min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, (now - record.absent_since).total_seconds() / 8))
