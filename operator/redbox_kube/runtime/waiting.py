"""Waiting for what only looking again can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

EVERY_S = 0.5


async def becomes_true(look: Callable[[], Awaitable[bool]], within_s: float) -> bool:
    """Whether `look` says yes in time; what it asks has its own deadlines."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + within_s
    while not await look():
        if loop.time() >= ends:
            return False
        await asyncio.sleep(EVERY_S)
    return True
