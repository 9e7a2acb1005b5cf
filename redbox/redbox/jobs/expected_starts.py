"""When a caller's waiting job would start: asked on demand, for its owner alone, and kept for seconds.

It changes with each cycle of Slurm's scheduler, for all jobs that wait. In records it would be a write, and
an event of each watch, for every waiting job every half minute.
"""

from __future__ import annotations

from functools import partial

from redbox.core.clock import Clock, SystemClock, with_deadline
from redbox.core.domain import Caller, Owner
from redbox.core.token_buckets import Rate
from redbox.core.ttl_cache import TtlCache
from redbox.core.workload_manager import JobHandle, WorkloadManager, WorkloadManagerError
from redbox.jobs.errors import JobConflict, JobsBusy
from redbox.jobs.owner_limit import OwnerLimit
from redbox.jobs.service import JobService
from redbox_api.models import ExpectedStart

FRESH_S = 5.0
FAILURE_S = 2.0
CALL_S = 20.0
MOST_JOBS = 1000  # whose answers are kept
CALLS = Rate(1.0, 20.0)  # of each owner: an owner may have thousands of jobs that wait


class ExpectedStarts:
    """Asks the workload manager about single jobs; requests about one job share an answer."""

    def __init__(self, jobs: JobService, workload: WorkloadManager, clock: Clock | None = None) -> None:
        self._jobs = jobs
        self._workload = workload
        self._clock = clock or SystemClock()
        self._limit = OwnerLimit("expected starts", CALLS)
        self._answers: dict[JobHandle, TtlCache[ExpectedStart | None]] = {}

    async def of_job(self, caller: Caller, key: str, attempt: int = 1) -> ExpectedStart:
        """JobConflict for a job that does not wait in Slurm."""
        record = await self._jobs.locate(caller, key, attempt)
        handle = record.handle
        if handle is None or record.final:
            where = "has ended" if record.final else "is still being submitted"
            raise JobConflict(f"The job {where}: it does not wait in Slurm.")
        try:
            answer = await self._cache_of(caller.owner, handle).get()
        except (WorkloadManagerError, TimeoutError) as fault:
            raise JobsBusy(f"Slurm does not answer: {fault}.", retry_after=5) from fault
        if answer is None:
            raise JobConflict(
                f"Slurm job {handle.job_id} does not wait any more: it has started, has ended, or is gone."
            )
        return answer

    def _cache_of(self, owner: Owner, handle: JobHandle) -> TtlCache[ExpectedStart | None]:
        if handle not in self._answers and len(self._answers) >= MOST_JOBS:
            self._answers.clear()
        fetch = partial(self._ask, owner, handle)
        fresh = TtlCache(fetch, FRESH_S, failure_ttl_s=FAILURE_S, clock=self._clock)
        return self._answers.setdefault(handle, fresh)

    async def _ask(self, owner: Owner, handle: JobHandle) -> ExpectedStart | None:
        self._limit.charge(owner, self._clock.monotonic())
        return await with_deadline(self._clock, CALL_S, self._workload.expected_start(handle))
