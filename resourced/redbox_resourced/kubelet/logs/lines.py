"""The reader's side of a log: whole lines, with timestamps if requested, up to a limit of bytes.

Lines of our own begin with `redbox: `, as the companion's do, and never in the middle of another line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple

from redbox_api.models import FINAL_PHASES, Job
from redbox_shared.own_lines import own_line

LONGEST_LINE = 16384  # as container runtimes have it: longer lines are written in parts
Write = Callable[[bytes], Awaitable[object]]


class ByteLimitReached(Exception):
    """The reader has got as many bytes as it requested."""


class LogTimes(NamedTuple):
    """When the lines of a log were written: not before its start, and not after its end."""

    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of_job(cls, job: Job) -> LogTimes:
        return cls(job.started_at, job.ended_at if job.phase in FINAL_PHASES else None)


class LogWriter:
    """Writes to the reader, for one stream at a time."""

    def __init__(self, write: Write, limit: int | None = None, timestamps_of: LogTimes | None = None) -> None:
        self.timestamps_of = timestamps_of
        self._write = write
        self._bytes_left = limit
        self._in_mid_line = False
        self._writing: object = None
        self._lock = asyncio.Lock()

    async def write(self, data: bytes) -> None:
        async with self._lock:
            self._in_mid_line = not data.endswith(b"\n")
            if self._bytes_left is None:
                await self._write(data)
                return
            await self._write(data[: self._bytes_left])
            self._bytes_left = max(0, self._bytes_left - len(data))
            if not self._bytes_left:
                raise ByteLimitReached

    async def write_in_turn(self, data: bytes, stream: object) -> None:
        """Write, and continue no line of another stream."""
        if self._writing is not stream:
            await self.begin_line()
            self._writing = stream
        await self.write(data)

    async def begin_line(self) -> None:
        """End an unfinished line, so that the next write does not continue it."""
        if self._in_mid_line:
            await self.write(b"\n")

    async def write_message(self, sentence: str) -> None:
        """Write a line of our own."""
        await self.begin_line()
        await self.write(LineBuffer(self.timestamps_of).add(own_line(sentence)))


class LineBuffer:
    """Holds the beginning of a line back until its end arrives; adds timestamps where times are given."""

    def __init__(self, timestamps_of: LogTimes | None) -> None:
        self._times = timestamps_of
        self._held = b""
        self._in_mid_line = False  # the last byte that was released is not a newline

    def add(self, piece: bytes) -> bytes:
        """The bytes that can be written now."""
        end = piece.rfind(b"\n") + 1
        if not end and len(self._held) + len(piece) < LONGEST_LINE:
            self._held += piece
            return b""
        end = end or len(piece)
        whole = self._held + piece[:end] if self._held else piece[:end]
        self._held = piece[end:]
        return self._with_timestamps(whole)

    def rest(self) -> bytes:
        """The last line, which has no newline."""
        held, self._held = self._held, b""
        return self._with_timestamps(held) if held else b""

    def _with_timestamps(self, data: bytes) -> bytes:
        continues, self._in_mid_line = self._in_mid_line, not data.endswith(b"\n")
        if self._times is None:
            return data
        time = timestamp(self._times, datetime.now(UTC))
        end = b"" if self._in_mid_line else b"\n"
        body = data.removesuffix(b"\n").replace(b"\n", b"\n" + time) + end
        return body if continues else time + body


def timestamp(times: LogTimes, now: datetime) -> bytes:
    """The latest time at which a line that is read now can have been written."""
    latest = min(now, times.ended_at) if times.ended_at else now
    return latest.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
