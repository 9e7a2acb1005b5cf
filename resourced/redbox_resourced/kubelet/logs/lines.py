"""What one reader of a log is given: whole lines, stamped where that is asked, up to a limit of bytes.

Lines of our own begin with `redbox: `, as the companion's do, and never in the midst of another line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from redbox_api.models import Job
from redbox_resourced.kubelet.logs.query import stamp
from redbox_shared.own_lines import own_line

LONGEST_LINE = 16384  # as container runtimes have it: what is longer goes out in parts
Write = Callable[[bytes], Awaitable[object]]


class Enough(Exception):
    """The reader's limit is reached."""


class Out:
    """The reader, whom one stream writes to at a time, up to its limit."""

    def __init__(self, write: Write, limit: int | None = None, stamped_for: Job | None = None) -> None:
        self.stamped_for = stamped_for
        self._write = write
        self._left = limit
        self._in_mid_line = False
        self._writing = asyncio.Lock()

    async def __call__(self, data: bytes) -> None:
        async with self._writing:
            self._in_mid_line = not data.endswith(b"\n")
            if self._left is None:
                await self._write(data)
                return
            await self._write(data[: self._left])
            self._left = max(0, self._left - len(data))
            if not self._left:
                raise Enough

    async def begin_line(self) -> None:
        """What is written next does not go on with the line before."""
        if self._in_mid_line:
            await self(b"\n")

    async def say(self, sentence: str) -> None:
        """One line of our own."""
        await self.begin_line()
        await self(Lines(self.stamped_for).add(own_line(sentence)))


class Lines:
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
