"""The usage of a caller's jobs, measured on request, as their user.

Of running jobs, one call measures many, and an owner's jobs are measured at most thrice a minute: if there
are more jobs than one call takes, those measured longest ago come next. The time of steps that have ended
since stays counted, so that a job's time only grows.

Of ended jobs, one call reads those of a request from the accounting, and an owner has one call at a time.
What is read is not read again; a job whose end is not there yet is read again after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from redbox.core.clock import Clock, SystemClock, finishes_within, with_deadline
from redbox.core.domain import Caller, JobKey, Owner, Role, UnixUser
from redbox.core.owned_tasks import OwnedTasks
from redbox.core.workload_manager import PastUsage, StepUsage, WorkloadManager, WorkloadManagerError
from redbox.jobs.errors import Forbidden, JobNotFound, JobsBusy
from redbox.jobs.record.record import JobRecord
from redbox.jobs.service import JobService
from redbox_api.models import EndedUsage, EndedUsageList, JobUsage, Phase, UsageList
from redbox_shared.keyed_semaphores import FairSlots

log = structlog.get_logger(__name__)
FRESH_S = 20.0
WAIT_S = 3.0  # of the caller
MOST_JOBS = 50  # in one call: each is an RPC to the controller, and one to each of its nodes
CALLS_AT_ONCE = 4  # of all users
CALLS_OF_A_USER = 1  # whose agent may hang; a user may have as many owners as there are accounts
CALL_S = 20.0
MOST_OWNERS = 10_000
MOST_ENDED = 1000  # of one owner, that are remembered
LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass
class JobMeter:
    """One job's last measurement."""

    run: int
    asked_at: datetime = LONG_AGO
    measured_at: datetime = LONG_AGO
    memory_bytes: int = 0
    cpu_s: dict[str, float] = field(default_factory=dict)
    """By step, those that have ended too."""

    def take(self, steps: Collection[StepUsage], at: datetime) -> None:
        """Add these running steps; without any, the last measurement stays, with its time."""
        self.asked_at = at
        if not steps:
            return
        self.measured_at = at
        self.memory_bytes = sum(step.memory_bytes for step in steps)
        for step in steps:
            name = f"{step.job_id}.{step.step}"
            self.cpu_s[name] = max(step.cpu_s, self.cpu_s.get(name, 0.0))

    def shown(self, key: JobKey) -> JobUsage:
        return JobUsage(
            key=key.key,
            attempt=key.attempt,
            measured_at=self.measured_at,
            cpu_seconds=sum(self.cpu_s.values()),
            memory_bytes=self.memory_bytes,
        )


@dataclass(frozen=True, slots=True)
class EndedMeter:
    """What the accounting had of an ended job when it was asked last."""

    run: int
    asked: float
    used: EndedUsage | None


@dataclass(eq=False)
class OwnerMeters:
    """The meters of one owner's jobs."""

    jobs: dict[JobKey, JobMeter] = field(default_factory=dict)
    due: float = float("-inf")
    measuring: asyncio.Task[None] | None = None
    answered_at: datetime | None = None
    fault: Exception | None = None
    ended: dict[JobKey, EndedMeter] = field(default_factory=dict)
    reading: asyncio.Task[None] | None = None
    reading_fault: Exception | None = None


class UsageOfJobs(OwnedTasks):
    """Measures the jobs of callers. An async context manager, which owns the measurements under way."""

    def __init__(self, jobs: JobService, workload: WorkloadManager, clock: Clock | None = None) -> None:
        super().__init__()
        self._jobs = jobs
        self._workload = workload
        self._clock = clock or SystemClock()
        self._calls = FairSlots(CALLS_AT_ONCE, CALLS_OF_A_USER)
        self._reads = FairSlots(CALLS_AT_ONCE, CALLS_OF_A_USER)
        self._has_accounting = True  # until it is asked
        self._owners: dict[tuple[Owner, UnixUser], OwnerMeters] = {}

    async def of_caller(self, caller: Caller) -> UsageList:
        """The last measurement; one that takes longer goes on for the next request.

        JobsBusy if nothing was ever measured because Slurm does not answer.
        """
        user = _user_of(caller)
        meters = self._meters(caller.owner, user)
        if meters.measuring is None and self._clock.monotonic() >= meters.due:
            meters.measuring = self._spawn(self._measure(caller.owner, user, meters))
        if meters.measuring is not None:
            await finishes_within(self._clock, WAIT_S, meters.measuring)
        if meters.fault is not None and meters.answered_at is None:
            raise JobsBusy(f"Slurm does not answer: {meters.fault}.", retry_after=5)
        items = [meter.shown(key) for key, meter in meters.jobs.items() if meter.cpu_s]
        return UsageList(items=items, stale_since=meters.answered_at if meters.fault else None)

    async def of_ended(self, caller: Caller, jobs: Collection[tuple[str, int]]) -> EndedUsageList:
        """From the accounting, of those of these keys and attempts that are the caller's and have ended.

        JobsBusy while the accounting does not answer; a call that takes longer goes on for the next request.
        """
        user = _user_of(caller)
        records = [record async for record in self._ended(caller, jobs)]
        meters = self._meters(caller.owner, user)
        until = self._clock.monotonic() + WAIT_S
        while due := [record for record in records if self._is_due(record, meters)]:
            if meters.reading is None:
                meters.reading = self._spawn(self._read(due, user, meters))
            left = max(0.0, until - self._clock.monotonic())
            if not await finishes_within(self._clock, left, meters.reading):
                raise JobsBusy("Slurm's accounting takes long: ask again in a moment.", retry_after=5)
            if meters.reading_fault is not None:
                raise JobsBusy(f"Slurm's accounting does not answer: {meters.reading_fault}.", retry_after=5)
        answers = [meters.ended[record.key].used for record in records if record.key in meters.ended]
        return EndedUsageList(items=[used for used in answers if used], accounting=self._has_accounting)

    async def _ended(self, caller: Caller, jobs: Collection[tuple[str, int]]) -> AsyncIterator[JobRecord]:
        for key, attempt in dict.fromkeys(jobs):
            with contextlib.suppress(JobNotFound, JobsBusy):
                record = await self._jobs.locate(caller, key, attempt)
                if record.final and record.job_id is not None:
                    yield record

    def _is_due(self, record: JobRecord, meters: OwnerMeters) -> bool:
        """Whether it was not read, or before the accounting had its end."""
        meter = meters.ended.get(record.key)
        if meter is None or meter.run != record.run:
            return True
        return meter.used is None and self._clock.monotonic() >= meter.asked + FRESH_S

    async def _read(self, records: Collection[JobRecord], user: UnixUser, meters: OwnerMeters) -> None:
        meters.reading_fault = None
        try:
            ids = [record.job_id for record in records if record.job_id]
            async with self._reads.of(user.uid):
                found = await self._workload.past_usage(user, ids)
            self._has_accounting = found is not None
            asked = self._clock.monotonic()
            if len(meters.ended) + len(records) > MOST_ENDED:
                meters.ended.clear()
            for record in records:
                used = next((used for used in found or () if _is_of(used, record)), None)
                shown = _shown(record.key, used) if used else None
                meters.ended[record.key] = EndedMeter(record.run, asked, shown)
        except (WorkloadManagerError, TimeoutError) as fault:
            meters.reading_fault = fault
        except Exception as fault:  # a fault of ours over one odd answer must not end the server
            log.exception("reading the usage of ended jobs failed")
            meters.reading_fault = fault
        finally:
            meters.reading = None

    def _meters(self, owner: Owner, user: UnixUser) -> OwnerMeters:
        if len(self._owners) > MOST_OWNERS:
            self._owners.clear()  # all are measured again, and their jobs' times begin at zero
        return self._owners.setdefault((owner, user), OwnerMeters())

    async def _measure(self, owner: Owner, user: UnixUser, meters: OwnerMeters) -> None:
        meters.fault = None
        try:
            due = self._take_stock(owner, user, meters)
            if due:
                async with self._calls.of(user.uid):
                    await self._take(due, user, meters)
            meters.answered_at = self._clock.now()
        except (WorkloadManagerError, TimeoutError) as fault:
            meters.fault = fault
        except Exception as fault:  # a fault of ours over one odd answer must not end the server
            log.exception("measuring the usage of jobs failed")
            meters.fault = fault
        finally:
            meters.measuring = None
            meters.due = self._clock.monotonic() + FRESH_S

    def _take_stock(self, owner: Owner, user: UnixUser, meters: OwnerMeters) -> dict[JobKey, JobRecord]:
        """A meter for each job that runs; which of them are due."""
        running = {record.key: record for record in self._running(owner, user)}
        for key in set(meters.jobs) - set(running):
            del meters.jobs[key]
        for key, record in running.items():
            if key not in meters.jobs or meters.jobs[key].run != record.run:
                meters.jobs[key] = JobMeter(record.run)
        due = sorted(running, key=lambda key: meters.jobs[key].asked_at)[:MOST_JOBS]
        return {key: running[key] for key in due}

    async def _take(self, records: Mapping[JobKey, JobRecord], user: UnixUser, meters: OwnerMeters) -> None:
        ids = {job_id: key for key, record in records.items() for job_id in _ids_of(record)}
        handles = [record.handle for record in records.values() if record.handle]
        steps = await with_deadline(self._clock, CALL_S, self._workload.usage(user, handles))
        of_jobs: defaultdict[JobKey, list[StepUsage]] = defaultdict(list)
        for step in steps:
            if step.job_id in ids:
                of_jobs[ids[step.job_id]].append(step)
        at = self._clock.now()
        for key in records:
            meters.jobs[key].take(of_jobs[key], at)

    def _running(self, owner: Owner, user: UnixUser) -> Iterable[JobRecord]:
        for outline in self._jobs:
            if outline.phase is Phase.RUNNING and outline.user.uid == user.uid and outline.key.owner == owner:
                record = self._jobs.current(outline.key)
                if record is not None and record.job_id is not None:
                    yield record


def _user_of(caller: Caller) -> UnixUser:
    if caller.user is None or not caller.may(Role.SUBMIT):
        raise Forbidden(f"{caller.identity} has no jobs here: its mapping rule lacks the role submit.")
    return caller.user


def _is_of(used: PastUsage, record: JobRecord) -> bool:
    """By the mark; an accounting that has neither comments nor submit lines leaves the time of the submit."""
    if used.job_id != record.job_id:
        return False
    return used.mark == record.mark or (not used.mark and used.submitted_at == record.status.submitted_at)


def _shown(key: JobKey, used: PastUsage) -> EndedUsage:
    return EndedUsage(
        key=key.key,
        attempt=key.attempt,
        cpus=used.cpus,
        cpu_seconds=used.cpu_s,
        allocated_cpu_seconds=used.allocated_cpu_s,
        memory_bytes=used.memory_bytes,
        allocated_memory_bytes=used.allocated_memory_bytes,
        elapsed_seconds=used.elapsed_s,
        time_limit_seconds=used.time_limit_s,
    )


def _ids_of(record: JobRecord) -> Collection[str]:
    """As steps name it: by its task where it is an array."""
    return {record.job_id or "", *(task.job_id for task in record.status.tasks)}
