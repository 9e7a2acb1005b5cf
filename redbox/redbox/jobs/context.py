"""What every part of `jobs` works with, in one hand."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from redbox.jobs.audit import Audit
from redbox.jobs.chores import Chores
from redbox.jobs.clock import Clock, within
from redbox.jobs.ledger import Ledger
from redbox.jobs.settings import JobsSettings
from redbox.workload import WorkloadManager

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
