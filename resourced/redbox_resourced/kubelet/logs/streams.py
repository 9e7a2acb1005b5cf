"""The streams of one job, read through red-box from where a reader stands, whatever breaks off in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from redbox_api.client import LogQuery, RedboxClient
from redbox_api.errors import Busy, NotAccepted, NotAllowed, Unreachable
from redbox_api.log_reader import BoundedRetry, follow_log
from redbox_api.models import Job
from redbox_resourced.kubelet.logs.lines import Lines
from redbox_resourced.kubelet.logs.query import Stream

LOOK_EVERY_S = 2.0
GIVE_UP_S = 15.0


@dataclass
class Reading:
    """Where the reader of one stream stands."""

    query: LogQuery
    copied: int = 0
    trouble: str = ""
    """Why red-box does not give the rest of it."""

    def begin_at_last(self, lines: int) -> None:
        self.query = replace(self.query, tail_lines=lines)

    def follow(self) -> None:
        """From now on to the job's end, instead of what there is now."""
        self.query = replace(self.query, follow=True)


@dataclass(frozen=True)
class Streams:
    """Those of one attempt of one job, and how to get at them."""

    client: RedboxClient
    key: str
    attempt: int

    def reading(self, stream: Stream, task: int | None = None) -> Reading:
        """One that begins at the first byte."""
        return Reading(LogQuery(stream=stream, attempt=self.attempt, task=task))

    async def later(self) -> Job:
        """The job a while later."""
        await asyncio.sleep(LOOK_EVERY_S)
        return await self.now()

    async def now(self) -> Job:
        """The job as it is."""
        retry = BoundedRetry()
        while True:
            try:
                return await self.client.get_job(self.key, attempt=self.attempt)
            except (Unreachable, Busy) as error:
                await retry.wait(error)

    async def copy(
        self,
        reading: Reading,
        out: Callable[[bytes], Awaitable[None]],
        lines: Lines,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Line by line; what red-box will not give is noted, and another stream's may come all the same.

        `before` is awaited before anything is made of a piece: what it says is stamped earlier.
        """
        reading.trouble = ""
        try:
            async with aclosing(self._read(reading)) as pieces:
                async for piece in pieces:
                    if before:
                        await before()
                    reading.copied += len(piece)
                    if whole := lines.add(piece):
                        await out(whole)
        except (NotAllowed, NotAccepted) as refused:
            reading.trouble = str(refused)
        if rest := lines.rest():
            await out(rest)

    async def count_lines(self, reading: Reading, wanted: int) -> int:
        """How many of the wanted lines a stream has: all of them if they do not begin at its first byte."""
        query = replace(reading.query, tail_lines=wanted)
        retry = BoundedRetry(give_up_s=GIVE_UP_S)
        while wanted:
            try:
                return min(wanted, await self._lines_of(query, wanted))
            except (Unreachable, Busy) as error:
                await retry.wait(error)
            except (NotAllowed, NotAccepted):
                return 0  # it is said where the stream is read
        return 0

    async def _lines_of(self, query: LogQuery, enough: int) -> int:
        async with self.client.read_log(self.key, query) as answer:
            if answer.offset > 0:
                return enough
            lines, last = 0, b"\n"
            async for piece in answer.pieces:
                lines += piece.count(b"\n")
                last = piece[-1:] or last
        return lines + (last != b"\n")

    async def _read(self, reading: Reading) -> AsyncGenerator[bytes, None]:
        """A follower's bytes to the job's end, else those that there are now; a break is gone on from."""
        if reading.query.follow:
            async with aclosing(follow_log(self.client, self.key, reading.query)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        retry = BoundedRetry(give_up_s=GIVE_UP_S)
        while True:
            try:
                async with self.client.read_log(self.key, reading.query) as answer:
                    retry.answered()
                    reading.query = reading.query.at(answer.generation, answer.offset)
                    async for piece in answer.pieces:
                        yield piece
                        reading.query = reading.query.at(answer.generation, reading.query.offset + len(piece))
                    return
            except (Unreachable, Busy) as error:
                await retry.wait(error)
