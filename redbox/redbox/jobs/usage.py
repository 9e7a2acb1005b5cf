"""What a caller's running jobs use, asked when somebody asks, as their user.

One call shows many jobs, and no owner's are asked for more than twice a minute or so: of more jobs than one
call shows, those measured longest ago come next. What a step used that has ended since stays counted, so that
a job's time only grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from redbox.domain import Caller, JobKey, Owner, Role, UnixUser
from redbox.jobs.clock import Clock, SystemClock, within
from redbox.jobs.errors import Forbidden
from redbox.jobs.records import Record
from redbox.jobs.remembered import Remembered
from redbox.jobs.service import Jobs
from redbox.workload import StepUsage, WorkloadManager
from redbox_api.models import Phase
from redbox_api.usage import JobUsage, UsageList

FRESH_S = 20.0
MOST_JOBS = 100  # in one call: each is an RPC to the controller, and one to each of its nodes
CALLS_AT_ONCE = 4  # of all owners, so that one user's agent that hangs holds up nobody
CALL_S = 20.0
MOST_OWNERS = 10_000
LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass
class Meter:
    """One job's last measure."""

    run: int
    asked_at: datetime = LONG_AGO
    measured_at: datetime = LONG_AGO
    memory_bytes: int = 0
    cpu_s: dict[str, float] = field(default_factory=dict)
    """By step, those that have ended too."""

    def take(self, steps: Iterable[StepUsage], at: datetime) -> None:
        """These steps run now; where none is told of, the last measure stands, with its time."""
        self.asked_at = at
        now = list(steps)
        if not now:
            return
        self.measured_at = at
        self.memory_bytes = sum(step.memory_bytes for step in now)
        for step in now:
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


class UsageOfJobs:
    """Measures the jobs of whoever asks."""

    def __init__(self, jobs: Jobs, workload: WorkloadManager, clock: Clock | None = None) -> None:
        self._jobs = jobs
        self._workload = workload
        self._clock = clock or SystemClock()
        self._calls = asyncio.Semaphore(CALLS_AT_ONCE)
        self._known: dict[tuple[Owner, UnixUser], Remembered[list[JobUsage]]] = {}

    async def of_caller(self, caller: Caller) -> UsageList:
        """Busy where nothing was ever measured because Slurm does not answer."""
        if caller.user is None or not caller.may(Role.SUBMIT):
            raise Forbidden(f"{caller.identity} has no jobs here: its mapping gives it no such role.")
        known = await self._remembered(caller.owner, caller.user).get()
        return UsageList(items=known.value, stale_since=known.stale_since)

    def _remembered(self, owner: Owner, user: UnixUser) -> Remembered[list[JobUsage]]:
        if len(self._known) > MOST_OWNERS:
            self._known.clear()  # each is asked anew, and its jobs' times begin anew
        meters: dict[JobKey, Meter] = {}

        async def measure() -> list[JobUsage]:
            return await self._measure(owner, user, meters)

        fresh = Remembered(measure, self._clock, fresh_s=FRESH_S)
        return self._known.setdefault((owner, user), fresh)

    async def _measure(self, owner: Owner, user: UnixUser, meters: dict[JobKey, Meter]) -> list[JobUsage]:
        running = {record.key: record for record in self._running(owner, user)}
        for key in set(meters) - set(running):
            del meters[key]
        for key, record in running.items():
            if key not in meters or meters[key].run != record.run:
                meters[key] = Meter(record.run)
        due = sorted(running, key=lambda key: meters[key].asked_at)[:MOST_JOBS]
        if due:
            await self._take({key: running[key] for key in due}, user, meters)
        return [meter.shown(key) for key, meter in meters.items() if meter.cpu_s]

    async def _take(
        self, records: Mapping[JobKey, Record], user: UnixUser, meters: Mapping[JobKey, Meter]
    ) -> None:
        ids = {job_id: key for key, record in records.items() for job_id in _ids_of(record)}
        leaders = [record.job_id for record in records.values() if record.job_id]
        async with self._calls:
            steps = await within(self._clock, CALL_S, self._workload.usage(user, leaders))
        at = self._clock.now()
        for key in records:
            meters[key].take((step for step in steps if ids.get(step.job_id) == key), at)

    def _running(self, owner: Owner, user: UnixUser) -> Iterable[Record]:
        for outline in self._jobs:
            if outline.phase is Phase.RUNNING and outline.user.uid == user.uid and outline.key.owner == owner:
                record = self._jobs.current(outline.key)
                if record is not None and record.job_id is not None:
                    yield record


def _ids_of(record: Record) -> Collection[str]:
    """As steps name it: by the task's own id where it is an array."""
    return {record.job_id or "", *(task.job_id for task in record.seen.tasks)}
