"""Turns of the event loop: the logs and sessions of a namespace have one together in each round.

One read may bring tens of thousands of frames, and a namespace has hundreds of readers whose output is
copied. If each took its time in each round, those of others would wait for all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

TURN_S = 0.002
"""In each round of the event loop."""
BYTES_PER_S = 128 * 1024 * 1024
"""What copying costs, with TLS on both sides: 256 KiB in a turn."""


class Turn:
    """It is taken one after the other; once it is used up the others wait for the next round."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._ends_at = 0.0
        self._left_s = TURN_S

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends_at

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """The block has no `await`, and ends soon after `is_over`."""
        async with self._lock:
            self._ends_at = time.monotonic() + self._left_s
            yield
            await self._leave(self._ends_at - time.monotonic())

    def charge(self, seconds: float) -> None:
        """Within the block: what another task will spend on what this one has read."""
        self._ends_at -= seconds

    async def copied(self, size: int) -> None:
        """To be awaited after so many bytes were written, before more are read."""
        async with self._lock:
            await self._leave(self._left_s - size / BYTES_PER_S)

    async def _leave(self, left_s: float) -> None:
        self._left_s = left_s
        if left_s <= 0:
            self._left_s = TURN_S
            await asyncio.sleep(0)


class NamespaceTurns:
    """Those of the namespaces that have readers or sessions."""

    def __init__(self) -> None:
        self._in_use: WeakValueDictionary[str, Turn] = WeakValueDictionary()

    def of(self, namespace: str) -> Turn:
        turn = self._in_use.get(namespace)
        if turn is None:
            turn = self._in_use[namespace] = Turn()
        return turn
