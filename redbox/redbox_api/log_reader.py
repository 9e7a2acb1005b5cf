"""Following a job's log to its end, without loss or doubling, however often the connection is cut.

A position is the generation of the file (a requeue begins a new one) and the offset in it; every request
contains both. After a response that ended or was cut off, the next request asks for the next byte, until
red-box answers that there is nothing more: the job is final and its last byte was read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace

from redbox_api.client import LogQuery, RedboxClient
from redbox_api.errors import Busy, RedboxError, Unreachable
from redbox_shared.backoff import Backoff

BACKOFF = Backoff(0.2, 5.0)


@dataclass
class BoundedRetry:
    """Waits between tries; raises the last error once there was no answer for `give_up_s`."""

    give_up_s: float = 60.0
    backoff: Backoff = BACKOFF
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _since: float | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)

    def answered(self) -> None:
        """Red-box is there: the next failure is the first in a row."""
        self._since, self._failures = None, 0

    async def wait(self, error: RedboxError) -> None:
        now = self.clock()
        self._since = now if self._since is None else self._since
        if now - self._since >= self.give_up_s:
            raise error
        self._failures += 1
        retry_after = error.retry_after if isinstance(error, Busy) else None
        await self.sleep(retry_after or self.backoff.pause_s(self._failures))


@dataclass
class LogCursor:
    """The position of a reader in one log."""

    query: LogQuery


def follow_log(
    client: RedboxClient, key: str, begin: LogQuery | None = None, retry: BoundedRetry | None = None
) -> AsyncGenerator[bytes, None]:
    """The bytes from `begin` to the last one (use `contextlib.aclosing`)."""
    cursor = LogCursor(replace(begin or LogQuery(), follow=True))
    return read_on(client, key, cursor, retry or BoundedRetry())


async def read_on(
    client: RedboxClient, key: str, cursor: LogCursor, retry: BoundedRetry
) -> AsyncGenerator[bytes, None]:
    """The bytes from the cursor on, which it moves: a follower's to the last one, else those that exist."""
    while True:
        try:
            async with client.read_log(key, cursor.query) as answer:
                retry.answered()
                cursor.query = cursor.query.at(answer.generation, answer.offset)
                if answer.restart is not None:  # one start is one log, though the next one begins meanwhile
                    cursor.query = replace(cursor.query, restart=answer.restart)
                if answer.nothing_more:
                    return
                async for piece in answer.pieces:
                    yield piece
                    cursor.query = cursor.query.at(answer.generation, cursor.query.offset + len(piece))
                if not cursor.query.follow:
                    return
        except (Unreachable, Busy) as error:
            await retry.wait(error)
