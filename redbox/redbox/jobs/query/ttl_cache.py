"""Answers that are kept for a few seconds, so that a crowd of askers is one call.

What cannot be refreshed is given as it was, with the time since when it is stale; where there never was an
answer, the fault is what is remembered, for a shorter while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from redbox.core.waiting import Clock
from redbox.core.workload_manager import WorkloadManagerError
from redbox.jobs.errors import Busy

FAULT_FRESH_S = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """An answer, and since when it could not be refreshed."""

    value: T
    stale_since: datetime | None = None


class Remembered(Generic[T]):
    """One question, asked at most every few seconds, and by one at a time."""

    def __init__(self, ask: Callable[[], Awaitable[T]], clock: Clock, fresh_s: float) -> None:
        self._ask = ask
        self._fresh_s = fresh_s
        self._clock = clock
        self._asking = asyncio.Lock()
        self._due = float("-inf")
        self._value: T | None = None
        self._answered_at: datetime | None = None
        self._fault: Exception | None = None

    async def get(self) -> Known[T]:
        """The answer; Busy where there never was one."""
        async with self._asking:
            if self._clock.monotonic() >= self._due:
                await self._refresh()
            if self._value is None:
                raise Busy(f"Slurm does not answer: {self._fault}.", retry_after=5)
            return Known(self._value, self._answered_at if self._fault else None)

    async def _refresh(self) -> None:
        try:
            self._value = await self._ask()
        except (WorkloadManagerError, TimeoutError) as fault:
            self._fault = fault
        else:
            self._fault, self._answered_at = None, self._clock.now()
        self._due = self._clock.monotonic() + (FAULT_FRESH_S if self._fault else self._fresh_s)
