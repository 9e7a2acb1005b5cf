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
from redbox_api.models import FINAL_PHASES, Job, Phase
from redbox_resourced.log_request import MOST_LINES, LogRequest, shares, stamp

LOOK_EVERY_S = 2.0
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
        out = _Out(write, request.limit_bytes, self.job if request.timestamps else None)
        try:
            if self.job.array is None:
                begins = await self._begins(request, request.tail_lines)
                await self._copy_all([_Reading(replace(one, follow=request.follow)) for one in begins], out)
            else:
                await self._copy_tasks(request, out)
        except* _Enough:
            pass

    async def _copy_tasks(self, request: LogRequest, out: _Out) -> None:
        """Of an array each task whole, so that no two are mixed: for a follower when the task has ended."""
        job, readings = self.job, await self._last_tasks(request)
        for of_task in readings.values():
            await self._copy_all(of_task, out)
        while request.follow and job.phase not in FINAL_PHASES:
            job = await self._later()
            for task in _readable_tasks(job, follow=True):
                if task not in readings:
                    begins = await self._begins(request, None, task)
                    readings[task] = [_Reading(one) for one in begins]
                    await self._copy_all(readings[task], out)
        if request.follow:  # what a file system shows late
            for of_task in readings.values():
                for one in of_task:
                    one.query = replace(one.query, follow=True)
                await self._copy_all(of_task, out)

    async def _later(self) -> Job:
        """The job a while later."""
        patience = Patience()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                return await self.client.get_job(self.key, attempt=self.attempt)
            except (Unreachable, Busy) as error:
                await patience.wait(error)

    async def _last_tasks(self, request: LogRequest) -> dict[int, list[_Reading]]:
        """Tasks in their order, from the first one that the wanted lines begin in."""
        readings: dict[int, list[_Reading]] = {}
        left = request.tail_lines
        for task in reversed(_readable_tasks(self.job, follow=request.follow)):
            begins = [] if left == 0 else await self._begins(request, left, task)
            readings[task] = [_Reading(one) for one in begins]
            if left is not None:
                left -= sum(one.tail_lines or 0 for one in begins)
        return dict(reversed(readings.items()))

    async def _copy_all(self, readings: list[_Reading], out: _Out) -> None:
        """Streams beside each other, each of its own lines."""
        async with asyncio.TaskGroup() as group:
            for reading in readings:
                group.create_task(self._copy_stream(reading, out))

    async def _copy_stream(self, reading: _Reading, out: _Out) -> None:
        lines = _Lines(out.stamped_for)
        async with aclosing(_read(self.client, self.key, reading)) as pieces:
            async for piece in pieces:
                if whole := lines.add(piece):
                    await out(whole)
        if rest := lines.rest():
            await out(rest)

    async def _begins(
        self, request: LogRequest, tail_lines: int | None, task: int | None = None
    ) -> list[LogQuery]:
        """Where each stream begins."""
        whole = [LogQuery(stream=one, attempt=self.attempt, task=task) for one in request.streams]
        if tail_lines is None:
            return whole
        wanted = min(tail_lines, MOST_LINES)
        if not wanted:
            return [replace(one, tail_lines=0) for one in whole]
        lines = [await self._count_lines(replace(one, tail_lines=wanted), wanted) for one in whole]
        parts = shares(wanted, tuple(lines))
        return [replace(one, tail_lines=part) for one, part in zip(whole, parts, strict=True)]

    async def _count_lines(self, query: LogQuery, wanted: int) -> int:
        """How many of the wanted lines a stream has: all of them if they do not begin at its first byte."""
        async with self.client.read_log(self.key, query) as answer:
            if answer.offset > 0:
                return wanted
            lines, last = 0, b"\n"
            async for piece in answer.pieces:
                lines += piece.count(b"\n")
                last = piece[-1:] or last
        return min(wanted, lines + (last != b"\n"))


@dataclass
class _Reading:
    """Where the reader of one stream stands."""

    query: LogQuery


def _readable_tasks(job: Job, *, follow: bool) -> list[int]:
    """A follower's tasks are those whose output is whole; another reader's all that have begun."""
    over = job.phase in FINAL_PHASES
    tasks = [one for one in job.tasks or () if over or one.phase in FINAL_PHASES or not follow]
    return sorted(one.index for one in tasks if over or one.phase is not Phase.PENDING)


class _Out:
    """The reader, whom one stream writes to at a time, up to its limit."""

    def __init__(self, write: Write, limit: int | None, stamped_for: Job | None) -> None:
        self.stamped_for = stamped_for
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


async def _read(client: RedboxClient, key: str, reading: _Reading) -> AsyncGenerator[bytes, None]:
    """A follower's bytes to the job's end, else those that there are now; a break is gone on from."""
    if reading.query.follow:
        async with aclosing(follow_log(client, key, reading.query)) as pieces:
            async for piece in pieces:
                yield piece
        return
    patience = Patience(give_up_s=15.0)
    while True:
        try:
            async with client.read_log(key, reading.query) as answer:
                patience.answered()
                reading.query = reading.query.at(answer.generation, answer.offset)
                async for piece in answer.pieces:
                    yield piece
                    reading.query = reading.query.at(answer.generation, reading.query.offset + len(piece))
                return
        except (Unreachable, Busy) as error:
            await patience.wait(error)
