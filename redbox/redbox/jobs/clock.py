"""Time, passed in: so that ten minutes are one step in a test.

Wall time goes into records, monotonic time measures waits. Nothing else in `jobs` asks what time it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """What time it is, and waiting."""

    def now(self) -> datetime:
        """Wall time, with its zone."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def finished_within(clock: Clock, seconds: float, task: asyncio.Future[Any]) -> bool:
    """Wait for a task, at most so long, and leave it running either way."""
    alarm = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        alarm.cancel()
    return task.done()


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Do this; on passing the deadline it is cancelled and TimeoutError raised."""
    task = asyncio.ensure_future(work)
    try:
        if not await finished_within(clock, seconds, task):
            raise TimeoutError(f"no answer within {seconds:.0f} s")
        return task.result()
    finally:
        task.cancel()
