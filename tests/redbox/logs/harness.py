"""A reader of a file on this machine, by the real service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from redbox.core.domain import UnixUser
from redbox.logs.pacing import PollIntervals
from redbox.logs.service import LogReadRequest, LogReadResponse, LogService
from redbox.logs.settings import LogSettings
from tests.redbox.logs.fakes import Disk, Life

ALICE = UnixUser("alice", 2001)
FOLLOW = LogReadRequest(follow=True)
LINES = b"".join(b"line %d\n" % number for number in range(1000))


class Reader:
    """One caller who reads one file, as often as it likes."""

    def __init__(
        self,
        path: Path,
        *,
        network: bool = False,
        writing: bool = True,
        silent_s: float = 60,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Where an answer ends by silence, or where time is not to pass, the test says so."""
        self.path = path
        self.disk = Disk(network=network)
        self.life = Life(path, writing=writing)
        intervals = PollIntervals(first=0.001, longest=0.005, unavailable=0.001)
        self.logs = LogService(LogSettings(settle_s=0.02, silent_s=silent_s), clock, intervals)

    @asynccontextmanager
    async def asks(self, query: LogReadRequest) -> AsyncIterator[LogReadResponse]:
        async with self.logs.read((str(self.path),), ALICE, self.disk, self.life, query) as answer:
            yield answer

    async def looked(self) -> None:
        """Once the file was looked at anew."""
        before = self.disk.reads
        while self.disk.reads < before + 2:  # noqa: ASYNC110 (reads have no event)
            await asyncio.sleep(0.001)

    async def reads(self, query: LogReadRequest) -> tuple[LogReadResponse, bytes]:
        async with self.asks(query) as answer:
            return answer, b"".join([piece async for piece in answer.pieces])

    async def follows_to_the_end(self) -> bytes:
        """As the companion does: ask from where it stands until there is nothing more."""
        read, generation, offset = b"", None, 0
        while True:
            answer, data = await self.reads(LogReadRequest(generation=generation, offset=offset, follow=True))
            if answer.complete:
                return read
            read += data
            generation, offset = answer.generation or None, answer.offset + len(data)
