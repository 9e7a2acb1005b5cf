"""What every part of `jobs` works with, in one hand."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from redbox.core.waiting import Clock, within
from redbox.core.workload_manager import WorkloadManager
from redbox.jobs.background_tasks import Chores
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.record_store import Ledger
from redbox.observability.job_audit import Audit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """The records, the workload manager, time, numbers, a place for work on the side, and who is told."""

    ledger: Ledger
    workload: WorkloadManager
    clock: Clock
    settings: JobsSettings
    chores: Chores
    audit: Audit

    async def ask(self, question: Coroutine[Any, Any, T]) -> T:
        """Ask the workload manager; TimeoutError when the deadline of all such calls passes."""
        return await within(self.clock, self.settings.call_limit_s, question)
