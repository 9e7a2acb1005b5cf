"""Waiting, passed in like the time itself: so that ten minutes are one step in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from redbox.core import clock

T = TypeVar("T")


class Clock(clock.Clock, Protocol):
    """What time it is, and waiting."""

    async def sleep(self, seconds: float) -> None: ...


class SystemClock(clock.SystemClock):
    """The machine's own clocks, and the event loop's waiting."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def finished_within(time: Clock, seconds: float, task: asyncio.Future[Any]) -> bool:
    """Wait for a task, at most so long, and leave it running either way."""
    alarm = asyncio.ensure_future(time.sleep(seconds))
    try:
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        alarm.cancel()
    return task.done()


async def within(time: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Do this; on passing the deadline it is cancelled and TimeoutError raised."""
    task = asyncio.ensure_future(work)
    try:
        if not await finished_within(time, seconds, task):
            raise TimeoutError(f"no answer within {seconds:.0f} s")
        return task.result()
    finally:
        task.cancel()
