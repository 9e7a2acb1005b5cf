"""The current time for statuses, and polling for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

EVERY_S = 0.5


def now() -> datetime:
    """The current time to the second, as Kubernetes stores it."""
    return datetime.now(UTC).replace(microsecond=0)


async def becomes_true(check: Callable[[], Awaitable[bool]], within_s: float) -> bool:
    """Whether `check` returns true in time; its requests have their own deadlines."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + within_s
    while not await check():
        if loop.time() >= ends:
            return False
        await asyncio.sleep(EVERY_S)
    return True
