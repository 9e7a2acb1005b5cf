"""Time that moves when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta


class SimulatedClock:
    """Time that moves when a test says so."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = itertools.count()

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.elapsed + max(0.0, seconds), next(self._number), woken))
        if seconds <= 0:
            self.advance_to(self.elapsed)
        await woken

    def next_waking(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def advance_to(self, elapsed: float) -> None:
        self.elapsed = max(self.elapsed, elapsed)
        while self._sleepers and self._sleepers[0][0] <= self.elapsed:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)

    def forget_sleepers(self) -> None:
        """Those of a server that has died."""
        self._sleepers.clear()
