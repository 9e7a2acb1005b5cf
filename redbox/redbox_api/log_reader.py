"""Following a job's log to its end, without loss or doubling, whatever breaks off in between.

Where a reader stands is two things: the generation of the file (a requeue begins a new one) and the offset in
it. Every request names both. An answer that breaks off is asked again from the next byte, and so is one that
ends cleanly, until red-box says that there is nothing more: the job is final and its last byte was read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace

from redbox_api.client import LogQuery, RedboxClient
from redbox_api.errors import Busy, RedboxError, Unreachable


@dataclass
class Patience:
    """How long no answer at all is put up with; each wait is twice the last."""

    give_up_s: float = 60.0
    first_s: float = 0.2
    longest_s: float = 5.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _since: float | None = field(default=None, init=False)
    _next_s: float = field(default=0.0, init=False)

    def answered(self) -> None:
        """Begin anew: red-box is there."""
        self._since = None

    async def wait(self, error: RedboxError) -> None:
        """Wait for the next try; raises the error once there was no answer for so long."""
        now = self.clock()
        if self._since is None:
            self._since, self._next_s = now, self.first_s
        if now - self._since >= self.give_up_s:
            raise error
        pause = error.retry_after if isinstance(error, Busy) and error.retry_after else self._next_s
        self._next_s = min(self.longest_s, 2 * self._next_s)
        await self.sleep(pause)


async def follow_log(
    client: RedboxClient, key: str, begin: LogQuery | None = None, patience: Patience | None = None
) -> AsyncGenerator[bytes, None]:
    """The bytes from where `begin` says to the last one (use `contextlib.aclosing`)."""
    patience = patience or Patience()
    query = replace(begin or LogQuery(), follow=True)
    while True:
        try:
            async with client.read_log(key, query) as answer:
                patience.answered()
                if answer.nothing_more:
                    return
                query = query.at(answer.generation, answer.offset)
                async for piece in answer.pieces:
                    yield piece
                    query = query.at(answer.generation, query.offset + len(piece))
        except (Unreachable, Busy) as error:
            await patience.wait(error)
