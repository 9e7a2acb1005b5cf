"""Dependencies shared by all components of `jobs`, and calls of the workload manager."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redbox.core.clock import Clock, with_deadline
from redbox.core.domain import Caller
from redbox.core.ttl_cache import CachedValue, TtlCache
from redbox.core.workload_manager import WorkloadManager, WorkloadManagerError
from redbox.jobs.background_tasks import BackgroundTasks
from redbox.jobs.errors import JobsBusy
from redbox.jobs.record.record import JobRecord
from redbox.jobs.record.state_machine import StateMachine
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.record_store import RecordStore
from redbox.observability.job_audit import Audit, audit_entry

T = TypeVar("T")
FAILURE_TTL_S = 2.0


@dataclass(frozen=True, slots=True)
class Context:
    """Dependencies shared by all components of `jobs`."""

    store: RecordStore
    workload: WorkloadManager
    clock: Clock
    settings: JobsSettings
    machine: StateMachine
    background: BackgroundTasks
    audit: Audit
    poll_requested: asyncio.Event = field(default_factory=asyncio.Event)

    def audit_act(self, caller: Caller, act: str, record: JobRecord, outcome: str, detail: str = "") -> None:
        """An act of the caller on a job."""
        job_id, name = record.job_id, record.job_name
        self.audit(audit_entry(caller, act, record.key, outcome, job_id=job_id, detail=detail, name=name))

    def request_poll(self) -> None:
        """Poll soon; many requests are one poll."""
        self.poll_requested.set()

    async def call(self, request: Coroutine[Any, Any, T]) -> T:
        """A call of the workload manager; TimeoutError past the deadline that all such calls have."""
        return await with_deadline(self.clock, self.settings.call_limit_s, request)

    def cached(self, fetch: Callable[[], Awaitable[T]]) -> TtlCache[T]:
        """The answer to a query about the cluster, kept for a few seconds."""
        return TtlCache(
            fetch,
            self.settings.partitions_every_s,
            failure_ttl_s=FAILURE_TTL_S,
            clock=self.clock,
        )


class JobsComponent:
    """Base of the components of `jobs`: what most of them use of the context, by short names."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store
        self._workload = context.workload
        self._clock = context.clock
        self._settings = context.settings
        self._machine = context.machine
        self._background = context.background


async def current(cache: TtlCache[T]) -> CachedValue[T]:
    """The cached answer, stale if Slurm is away; JobsBusy if Slurm has never answered."""
    try:
        return await cache.get_or_stale()
    except (WorkloadManagerError, TimeoutError) as fault:
        raise JobsBusy(f"Slurm does not answer: {fault}.", retry_after=5) from fault
