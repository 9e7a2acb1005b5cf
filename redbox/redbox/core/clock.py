"""Time, passed in so that tests need not wait: both clocks, sleeping, and deadlines.

Wall time is compared with times that others recorded (a token's `exp`); monotonic time measures how long ago
something happened in this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Wall time, monotonic time, and sleeping."""

    def now(self) -> datetime:
        """Wall time, with its zone."""

    def monotonic(self) -> float:
        """Seconds that never run backwards."""

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clocks, and the event loop's sleep."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def finishes_within(clock: Clock, seconds: float, task: asyncio.Future[Any]) -> bool:
    """Wait for a task until the deadline, and leave it running either way."""
    alarm = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        alarm.cancel()
    return task.done()


async def is_set_within(clock: Clock, seconds: float, event: asyncio.Event) -> bool:
    waiting = asyncio.ensure_future(event.wait())
    try:
        return await finishes_within(clock, seconds, waiting)
    finally:
        waiting.cancel()


async def with_deadline(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; past the deadline it is cancelled and TimeoutError raised."""
    task = asyncio.ensure_future(work)
    try:
        if not await finishes_within(clock, seconds, task):
            raise TimeoutError(f"no answer within {seconds:.0f} s")
        return task.result()
    finally:
        task.cancel()
