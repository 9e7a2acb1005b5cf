"""Asks many users' agents side by side: one that does not answer is its user's loss, and holds up nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from redbox.core.domain import UnixUser
from redbox.core.workload_manager import WorkloadManagerError

T = TypeVar("T")
AT_ONCE = 8
SILENT_S, SLOWER = 2.0, 4  # how long, and how much longer than others, one may take who was silent before

Question = Callable[[UnixUser, float | None], Awaitable[T]]
"""Asked of a reader, within these seconds if any are named; raises WorkloadFault."""


class PerUserQueries:
    """Who alone did not answer the last time has less time to do so."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._patience_s: dict[UnixUser, float] = {}  # with those who did not answer when others did

    async def ask(
        self, readers: Collection[UnixUser], question: Question[T]
    ) -> dict[UnixUser, T | WorkloadManagerError]:
        """What each of them answers, in their order; raises what the first met where none answers."""
        answers: dict[UnixUser, T] = {}
        faults: dict[UnixUser, WorkloadManagerError] = {}
        slots = asyncio.Semaphore(AT_ONCE)
        slowest_s: float | None = None

        async def ask_one(reader: UnixUser) -> None:
            nonlocal slowest_s
            async with slots:
                started = self._monotonic()
                try:
                    answers[reader] = await question(reader, self._patience_s.get(reader))
                except WorkloadManagerError as fault:
                    faults[reader] = fault
                else:
                    slowest_s = max(slowest_s or 0.0, self._monotonic() - started)

        try:
            async with asyncio.TaskGroup() as group:
                for reader in readers:
                    group.create_task(ask_one(reader))
        finally:  # also where all of it was given up: those who caused that are known the next time
            self._remember(readers, answers, slowest_s)
        if faults and not answers:
            raise next(faults[reader] for reader in readers)
        return {reader: answers[reader] if reader in answers else faults[reader] for reader in readers}

    def _remember(
        self, readers: Collection[UnixUser], answered: Collection[UnixUser], slowest_s: float | None
    ) -> None:
        for reader in readers:
            self._patience_s.pop(reader, None)
            if reader not in answered and slowest_s is not None:
                self._patience_s[reader] = max(SILENT_S, SLOWER * slowest_s)
