"""A pod's log for one reader: both streams of its job, read through red-box as the pod's own account.

Nothing is read before somebody asks, and nothing once nobody does. The two streams are put together line by
line, in the order in which they are read; bytes are passed on as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from redbox_api.client import LogQuery, RedboxClient
from redbox_api.errors import Busy, Unreachable
from redbox_api.log_reader import Patience, follow_log
from redbox_api.models import Job
from redbox_resourced.log_request import MOST_LINES, LogRequest, Stream, shares, stamp

LONGEST_LINE = 16384  # as container runtimes have it: what is longer goes out in parts
Write = Callable[[bytes], Awaitable[object]]


class _Enough(Exception):
    """The reader's limit is reached."""


@dataclass(frozen=True)
class PodLog:
    """The log of one attempt of one job, and how to get at it."""

    client: RedboxClient
    key: str
    attempt: int
    job: Job

    async def copy(self, request: LogRequest, write: Write) -> None:
        """Pass on what is asked for, to its end; raises RedboxError where red-box stays away."""
        begins = await self._begins(request)
        out = _Out(write, request.limit_bytes)
        try:
            async with asyncio.TaskGroup() as group:
                for begin in begins:
                    lines = _Lines(self.job if request.timestamps else None)
                    group.create_task(self._copy_stream(begin, out, lines))
        except* _Enough:
            pass

    async def _copy_stream(self, begin: LogQuery, out: _Out, lines: _Lines) -> None:
        async with aclosing(_read(self.client, self.key, begin)) as pieces:
            async for piece in pieces:
                if whole := lines.add(piece):
                    await out(whole)
        if rest := lines.rest():
            await out(rest)

    async def _begins(self, request: LogRequest) -> list[LogQuery]:
        """Where each stream begins."""
        whole = [LogQuery(stream=one, attempt=self.attempt, follow=request.follow) for one in request.streams]
        if request.tail_lines is None:
            return whole
        wanted = min(request.tail_lines, MOST_LINES)
        if not wanted:
            return [replace(one, tail_lines=0) for one in whole]
        lines = [await self._count_lines(one.stream, wanted) for one in whole]
        parts = shares(wanted, tuple(lines))
        return [replace(one, tail_lines=part) for one, part in zip(whole, parts, strict=True)]

    async def _count_lines(self, stream: Stream, wanted: int) -> int:
        """How many of the wanted lines a stream has: all of them if they do not begin at its first byte."""
        query = LogQuery(stream=stream, attempt=self.attempt, tail_lines=wanted)
        async with self.client.read_log(self.key, query) as answer:
            if answer.offset > 0:
                return wanted
            lines, last = 0, b"\n"
            async for piece in answer.pieces:
                lines += piece.count(b"\n")
                last = piece[-1:] or last
        return min(wanted, lines + (last != b"\n"))


class _Out:
    """The reader, whom one stream writes to at a time, up to its limit."""

    def __init__(self, write: Write, limit: int | None) -> None:
        self._write = write
        self._left = limit
        self._writing = asyncio.Lock()

    async def __call__(self, data: bytes) -> None:
        async with self._writing:
            if self._left is None:
                await self._write(data)
                return
            await self._write(data[: self._left])
            self._left = max(0, self._left - len(data))
            if not self._left:
                raise _Enough


class _Lines:
    """Holds back the beginning of a line until its end comes, and stamps lines where a job is given."""

    def __init__(self, stamped_for: Job | None) -> None:
        self._job = stamped_for
        self._held = b""
        self._inside = False  # the last byte that went out was not a line's end

    def add(self, piece: bytes) -> bytes:
        """What can go out now."""
        end = piece.rfind(b"\n") + 1
        if not end and len(self._held) + len(piece) < LONGEST_LINE:
            self._held += piece
            return b""
        end = end or len(piece)
        whole = self._held + piece[:end] if self._held else piece[:end]
        self._held = piece[end:]
        return self._stamped(whole)

    def rest(self) -> bytes:
        """The last line, where nothing ends it."""
        held, self._held = self._held, b""
        return self._stamped(held) if held else b""

    def _stamped(self, data: bytes) -> bytes:
        inside, self._inside = self._inside, not data.endswith(b"\n")
        if self._job is None:
            return data
        mark = stamp(self._job, datetime.now(UTC))
        end = b"" if self._inside else b"\n"
        body = data.removesuffix(b"\n").replace(b"\n", b"\n" + mark) + end
        return body if inside else mark + body


async def _read(client: RedboxClient, key: str, begin: LogQuery) -> AsyncGenerator[bytes, None]:
    """A follower's bytes to the job's end, else those that there are now; a break is gone on from."""
    if begin.follow:
        async with aclosing(follow_log(client, key, begin)) as pieces:
            async for piece in pieces:
                yield piece
        return
    patience, query = Patience(give_up_s=15.0), begin
    while True:
        try:
            async with client.read_log(key, query) as answer:
                patience.answered()
                query = query.at(answer.generation, answer.offset)
                async for piece in answer.pieces:
                    yield piece
                    query = query.at(answer.generation, query.offset + len(piece))
                return
        except (Unreachable, Busy) as error:
            await patience.wait(error)
