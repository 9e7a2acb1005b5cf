"""Jobs that were cancelled in Slurm: who did it, and whether their launch failed.

The queue shows neither. The accounting has the user; it is asked once for all jobs of a poll, never twice at
once, and again, ever more rarely, about a job whose end it does not have yet. An end that is final gets its
sentence completed, once. A job that Slurm may have cancelled since a node could not launch it ends after the
answer, or after half a minute without one; a missing output file counts only after a while, which network
file systems take to show it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from redbox.core.clock import is_set_within
from redbox.core.domain import JobKey
from redbox.core.workload_manager import AccountingSnapshot, WorkloadManagerError
from redbox.jobs.context import Context, JobsComponent
from redbox.jobs.errors import JobsError
from redbox.jobs.poll.missing_jobs import latest_row
from redbox.jobs.poll.output_lookups import OutputLookups
from redbox.jobs.queue_snapshot import SnapshotIndex, SnapshotMatch, is_as_submitted
from redbox.jobs.record.forgotten import output_of
from redbox.jobs.record.launches import CANCELLED, ROOT, lacks_canceller, may_be_failed_launch
from redbox.jobs.record.record import JobRecord
from redbox.jobs.record.state_machine import StateMachine

log = structlog.get_logger(__name__)

SHORTEST_PAUSE_S = 2.0
GIVE_UP_S = 86_400.0  # a slurmdbd that is away for longer than a day is a rarity
SHOWN_LATE = timedelta(seconds=15)
MOST_IN_ONE = 1000  # jobs
NEVER = float("inf")


@dataclass(slots=True)
class CancelInquiry:
    """When the accounting was first, and is next, to be asked about a run of a job."""

    run: int
    first: float
    due: float


@dataclass(frozen=True, slots=True)
class CancelEvidence:
    """What the accounting shows of a cancelled job."""

    by: int | None
    settled: bool  # it has the job's end, or there is no accounting


NO_CANCELLER = CancelEvidence(None, settled=True)


def is_open(record: JobRecord) -> bool:
    """Whether an answer would change the record."""
    waits = not record.final and record.ending_since is not None
    return lacks_canceller(record) or (waits and may_be_failed_launch(record))


def evidence_of(record: JobRecord, history: AccountingSnapshot) -> CancelEvidence:
    """Of the run that the record shows: rows may be late."""
    row, started_at = latest_row(record, history.jobs), record.status.started_at
    if row is None or row.state != CANCELLED or not is_as_submitted(record, row):
        return CancelEvidence(None, settled=not history.available)
    if started_at is not None and row.ended_at is not None and row.ended_at < started_at:
        return CancelEvidence(None, settled=False)
    return CancelEvidence(row.cancelled_by, settled=True)


def may_have_started(record: JobRecord, *, output_exists: bool | None, now: datetime) -> bool | None:
    """Whether this run, which root has cancelled, shows or may hide a start; None: it may still show it.

    Where the job ran before, its output file may be of that run.
    """
    is_shown_by_now = record.ending_since is not None and now - record.ending_since >= SHOWN_LATE
    if not may_be_failed_launch(record):
        return True
    if record.run > 1:
        return False if is_shown_by_now else None
    if output_of(record) is None or output_exists:
        return True
    return False if output_exists is False and is_shown_by_now else None


def after_answer(
    record: JobRecord,
    evidence: CancelEvidence,
    now: datetime,
    machine: StateMachine,
    *,
    output_exists: bool | None,
) -> JobRecord:
    """The record of an open job after the accounting was asked, and its output looked for. Pure."""
    if record.final or record.is_pod or evidence.by != ROOT:
        if evidence.by is None and (record.final or not evidence.settled):
            return record
        return machine.with_canceller(record, evidence.by, now, settled=evidence.settled)
    started = may_have_started(record, output_exists=output_exists, now=now)
    return machine.with_canceller(
        record,
        ROOT,
        now,
        settled=started is not None,
        no_sign_of_start=started is False and record.run == 1,
        started_before=started is False and record.run > 1,
    )


class CancelledJobs(JobsComponent):
    """Asks the accounting, and records the answers. Its task begins with the first such job."""

    def __init__(self, context: Context, group: asyncio.TaskGroup) -> None:
        super().__init__(context)
        self._inquiries: dict[JobKey, CancelInquiry] = {}
        self._outputs = OutputLookups(context)
        self._group = group
        self._running: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()

    def follow(self, record: JobRecord, _: SnapshotMatch, __: SnapshotIndex) -> None:
        """After each poll: begin with a job that was cancelled by it is not known whom."""
        inquiry = self._inquiries.get(record.key)
        if not is_open(record) or (inquiry is not None and inquiry.run == record.run):
            return
        now = self._clock.monotonic()
        self._inquiries[record.key] = CancelInquiry(record.run, now, now)
        self._wanted.set()
        if self._running is None:
            self._running = self._group.create_task(self._run())

    async def _run(self) -> None:
        """Ask for ever, about all jobs that are due at once."""
        while True:
            self._wanted.clear()
            began = self._clock.monotonic()
            due = self._due(began)
            next_due = min((inquiry.due for inquiry in self._inquiries.values()), default=NEVER)
            if due:
                await self._ask_safely(due)
                took = self._clock.monotonic() - began
                await self._clock.sleep(max(SHORTEST_PAUSE_S, took))
            elif next_due == NEVER:
                await self._wanted.wait()
            else:
                await is_set_within(self._clock, next_due - began, self._wanted)

    def _due(self, now: float) -> Sequence[JobRecord]:
        """The jobs to ask about; those of which nothing more will be known are dropped."""
        due: list[JobRecord] = []
        for key, inquiry in list(self._inquiries.items()):
            record = self._store.index.get(key)
            is_settled = inquiry.due == NEVER and record is not None and not record.in_queue
            is_over = is_settled or now - inquiry.first > GIVE_UP_S
            if record is None or not is_open(record) or is_over:
                del self._inquiries[key]
            elif inquiry.due <= now and len(due) < MOST_IN_ONE:
                due.append(record)
        return due

    async def _ask_safely(self, records: Sequence[JobRecord]) -> None:
        now = self._clock.monotonic()
        for record in records:
            inquiry = self._inquiries[record.key]
            inquiry.due = now + max(SHORTEST_PAUSE_S, (now - inquiry.first) / 4)
        try:
            await self._ask(records)
        except (JobsError, WorkloadManagerError, TimeoutError) as fault:
            log.warning("who cancelled jobs could not be looked up in the accounting: %s", fault)
        except Exception:  # a fault of ours over one odd record must not end the server
            log.exception("looking up who cancelled jobs failed")

    async def _ask(self, records: Sequence[JobRecord]) -> None:
        evidence = await self._evidence(records)
        by_root = [r for r in records if evidence[r.key].by == ROOT and not (r.final or r.is_pod)]
        outputs = await self._outputs.exist(record for record in by_root if record.run == 1)
        asked = {record.key: (record.job_id, record.run) for record in records}

        def decide(record: JobRecord) -> JobRecord:
            if (record.job_id, record.run) != asked[record.key] or not is_open(record):
                return record
            exists = outputs.get(record.key)
            now = self._clock.now()
            return after_answer(record, evidence[record.key], now, self._machine, output_exists=exists)

        await self._store.change_free(records, decide)
        for record in records:
            if record.final and evidence[record.key] == NO_CANCELLER:
                self._inquiries[record.key].due = NEVER

    async def _evidence(self, records: Sequence[JobRecord]) -> dict[JobKey, CancelEvidence]:
        """In one call for all of whom it is not known yet."""
        unknown = [record for record in records if lacks_canceller(record)]
        evidence = {r.key: CancelEvidence(r.status.cancelled_by, settled=True) for r in records}
        if unknown:
            ids = sorted({record.job_id for record in unknown if record.job_id})
            users = frozenset(record.user for record in unknown)
            history = await self._context.call(self._workload.history(ids, users=users))
            evidence |= {record.key: evidence_of(record, history) for record in unknown}
        return evidence
