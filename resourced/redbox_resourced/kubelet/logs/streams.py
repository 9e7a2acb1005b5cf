"""The streams of one job, read through red-box, and resumed at the cursor after a connection breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime

from redbox_api.client import LogQuery, RedboxClient
from redbox_api.errors import Busy, NotAccepted, NotAllowed, Unreachable
from redbox_api.log_reader import BoundedRetry, LogCursor, read_on
from redbox_api.models import Job
from redbox_resourced.kubelet.logs.lines import LineBuffer, LogTimes
from redbox_resourced.kubelet.logs.query import Stream
from redbox_resourced.kubelet.logs.time_index import LogTimeIndex

POLL_S = 2.0
GIVE_UP_S = 15.0


@dataclass
class StreamCursor(LogCursor):
    """Of the reader of one stream."""

    problem: str = ""
    """Why red-box refuses the rest of it."""

    def start_at_last(self, lines: int) -> None:
        self.query = replace(self.query, tail_lines=lines)

    def follow(self) -> None:
        """Read until the job's end, instead of the bytes that exist now."""
        self.query = replace(self.query, follow=True)


@dataclass(frozen=True)
class JobStreams:
    """The streams of one attempt of one job; of a pod's, of one start of one container."""

    client: RedboxClient
    key: str
    attempt: int
    container: str | None = None
    restart: int | None = None
    since: datetime | None = None
    time_index: LogTimeIndex | None = None
    """Of that start: what all its readers have seen."""

    def cursor(self, stream: Stream, task: int | None = None) -> StreamCursor:
        """At the first byte, or at one that is older than `since`, with no line since then before it."""
        query = LogQuery(stream, self.attempt, task, container=self.container, restart=self.restart)
        start = self.time_index.before(self.since) if self.time_index and self.since else None
        return StreamCursor(query.at(start.generation, start.offset) if start else query)

    async def poll_job(self) -> Job:
        await asyncio.sleep(POLL_S)
        return await self.get_job()

    async def get_job(self) -> Job:
        retry = BoundedRetry()
        while True:
            try:
                return await self.client.get_job(self.key, attempt=self.attempt)
            except (Unreachable, Busy) as error:
                await retry.wait(error)

    async def copy(
        self,
        cursor: StreamCursor,
        write: Callable[[bytes], Awaitable[None]],
        timestamps_of: LogTimes | None,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Copy line by line; a refusal is recorded in the cursor and leaves other streams unaffected.

        `before` is awaited before a piece is processed, so that lines it writes have an earlier timestamp.
        """
        lines = LineBuffer(timestamps_of)
        cursor.problem = ""
        try:
            retry = BoundedRetry() if cursor.query.follow else BoundedRetry(GIVE_UP_S)
            async with aclosing(read_on(self.client, self.key, cursor, retry)) as pieces:
                async for piece in pieces:
                    if self.time_index:
                        self.time_index.read(piece, cursor.query.generation, cursor.query.offset)
                    if before:
                        await before()
                    if whole := lines.add(piece):
                        await write(whole)
        except (NotAllowed, NotAccepted) as refused:
            cursor.problem = str(refused)
        if rest := lines.rest():
            await write(rest)

    async def count_lines(self, cursor: StreamCursor, wanted: int) -> int:
        """How many of the wanted last lines a stream has."""
        if not wanted:
            return 0
        query = replace(cursor.query, tail_lines=wanted)
        retry = BoundedRetry(give_up_s=GIVE_UP_S)
        while True:
            try:
                async with self.client.read_log(self.key, query) as answer:
                    if answer.offset > 0:
                        return wanted  # the stream has more lines than these
                    lines, last = 0, b"\n"
                    async for piece in answer.pieces:
                        lines += piece.count(b"\n")
                        last = piece[-1:] or last
                    return min(wanted, lines + (last != b"\n"))
            except (Unreachable, Busy) as error:
                await retry.wait(error)
            except (NotAllowed, NotAccepted):
                return 0  # reported when the stream is read
