"""Reading one log for one reader: the generation and offset of the first byte, and the bytes from there on.

A response ends cleanly when its reader should send the next request (another generation began, the file was
silent for long, the limit is reached), and it is `complete` when the job is final and no byte is left. So a
reader needs no protocol but HTTP: it repeats its request with the generation and offset that it has reached,
until a response is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from redbox.core.domain import UnixUser
from redbox.logs.agent_files import AgentFiles
from redbox.logs.generations import parse_generation
from redbox.logs.interfaces import LogFileUnavailable, OutputSource
from redbox.logs.pacing import PollIntervals, ReadBudget
from redbox.logs.settings import LogSettings
from redbox.logs.tail import CHUNK_BYTES, Tail

MAX_TAIL_BYTES = 64 << 20  # searched for the last lines of a file that has hardly any
BLOCK_BYTES = CHUNK_BYTES  # smaller blocks would make an agent read each chunk many times
MAX_RESTING = 1000  # tails of 5 KiB without a reader: the next request of a reader often follows soon


@dataclass(frozen=True, slots=True)
class LogReadRequest:
    """A reader's position, and how much it wants."""

    generation: str | None = None
    offset: int = 0
    tail_bytes: int | None = None
    tail_lines: int | None = None
    limit: int | None = None
    follow: bool = False


@dataclass(frozen=True, slots=True)
class LogReadResponse:
    """`pieces` begin at `offset` of `generation`; `complete`: there are none and will be none."""

    generation: str
    offset: int
    pieces: AsyncIterator[bytes]
    complete: bool = False
    restart: int | None = None  # of a container's log: which of its starts


class LogService:
    """The tails of all files that have readers, and of those that had some lately."""

    def __init__(
        self, settings: LogSettings, clock: Callable[[], float], intervals: PollIntervals | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._intervals = intervals or PollIntervals()
        self._budget = ReadBudget(settings.file_calls_per_second, clock)
        self._tails: dict[tuple[str, ...], tuple[Tail, int]] = {}  # with the number of readers
        self._resting: OrderedDict[tuple[str, ...], Tail] = OrderedDict()

    @asynccontextmanager
    async def read(
        self,
        name: tuple[str, ...],
        user: UnixUser,
        files: AgentFiles,
        output: OutputSource,
        request: LogReadRequest,
    ) -> AsyncIterator[LogReadResponse]:
        """Respond to one reader; readers of the same `name` share a tail."""
        with self._tail(name, user, files, output) as tail:
            yield await self._respond(tail, request)

    @contextlib.contextmanager
    def _tail(
        self, name: tuple[str, ...], user: UnixUser, files: AgentFiles, output: OutputSource
    ) -> Iterator[Tail]:
        resting = self._resting.pop(name) if name in self._resting else None
        tail, readers = self._tails.get(name) or (resting or self._new_tail(user, files, output), 0)
        self._tails[name] = (tail, readers + 1)
        try:
            yield tail
        finally:
            self._release(name)

    def _new_tail(self, user: UnixUser, files: AgentFiles, output: OutputSource) -> Tail:
        return Tail(
            files=files,
            output=output,
            budget=self._budget,
            user=user.uid,
            clock=self._clock,
            intervals=self._intervals,
            settle_network_s=self._settings.settle_s,
        )

    def _release(self, name: tuple[str, ...]) -> None:
        tail, readers = self._tails[name]
        if readers > 1:
            self._tails[name] = (tail, readers - 1)
            return
        del self._tails[name]
        tail.rest()
        if tail.generation is not None:
            self._resting[name] = tail
        if len(self._resting) > MAX_RESTING:
            self._resting.popitem(last=False)

    async def _respond(self, tail: Tail, request: LogReadRequest) -> LogReadResponse:
        """Find the first byte; a follower's response begins when there is one."""
        if request.follow:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.silent_s):
                    await tail.find_end(request.generation, request.offset)
                    request = await self._with_start(tail, request)
                    await tail.read_at(request.generation, request.offset)
        else:
            await tail.find_end(request.generation, request.offset)
        claimed = parse_generation(request.generation or "")
        keeps = claimed is not None and (tail.generation is None or tail.is_current(str(claimed)))
        generation = str(claimed if keeps else tail.generation or "")
        offset = await self._start(tail, request, generation)
        pieces = self._pieces(tail, generation, offset, request)
        return LogReadResponse(generation, offset, pieces, complete=tail.complete and offset >= tail.shown)

    async def _with_start(self, tail: Tail, request: LogReadRequest) -> LogReadRequest:
        """Find the last lines now, not when the wait for more bytes ends: bytes written meanwhile are new."""
        if request.tail_bytes is None and request.tail_lines is None:
            return request
        generation = str(tail.generation) if tail.generation else None
        offset = await self._start(tail, request, generation) if generation else 0
        return replace(request, generation=generation, offset=offset, tail_bytes=None, tail_lines=None)

    async def _start(self, tail: Tail, request: LogReadRequest, generation: str) -> int:
        if request.tail_bytes is not None:
            return max(0, tail.shown - request.tail_bytes)
        if request.tail_lines is not None:
            return await _start_of_lines(tail, generation, request.tail_lines)
        return request.offset if request.generation in {None, generation} else 0

    async def _pieces(
        self, tail: Tail, generation: str, offset: int, request: LogReadRequest
    ) -> AsyncIterator[bytes]:
        end = tail.shown if not request.follow else None
        left = request.limit if request.limit is not None else float("inf")
        read = self._follow_at if request.follow else Tail.read_at
        while generation and left > 0 and (end is None or offset < end):
            data = await read(tail, generation, offset)
            if data is None:
                return
            data = data[: int(min(left, len(data)))]
            yield data
            offset += len(data)
            left -= len(data)

    async def _follow_at(self, tail: Tail, generation: str, offset: int) -> bytes | None:
        """Wait for bytes, also while the file system hangs, up to the limit of silence."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.silent_s):
                while True:
                    try:
                        return await tail.read_at(generation, offset)
                    except LogFileUnavailable:
                        await asyncio.sleep(self._intervals.unavailable)
        return None


async def _start_of_lines(tail: Tail, generation: str, lines: int) -> int:
    """Return the offset of the last lines, found from the end in blocks, or of the last 64 MiB."""
    if lines == 0:
        return tail.shown
    newest = end = tail.shown
    missing = lines
    earliest = max(0, end - MAX_TAIL_BYTES)
    while end > earliest:
        start = max(0, end - BLOCK_BYTES)
        block = await _block(tail, generation, start, end)
        searched = block[:-1] if end == newest and block.endswith(b"\n") else block
        found = searched.count(b"\n")
        if found >= missing:
            return start + newline_from_end(searched, missing) + 1
        missing -= found
        end = start
    return earliest


def newline_from_end(block: bytes, number: int) -> int:
    """Return where the newline is of which the block has `number`, itself included, to its end.

    By counts of halves: to go from one newline to the next takes 0.2 s for a million, of the event loop.
    """
    first, last = 0, len(block) - 1
    while first < last:
        middle = (first + last + 1) // 2
        if block.count(b"\n", middle) >= number:
            first = middle
        else:
            last = middle - 1
    return first


async def _block(tail: Tail, generation: str, start: int, end: int) -> bytes:
    block = b""
    while start + len(block) < end:
        data = await tail.read_at(generation, start + len(block))
        if data is None:
            break
        block += data[: end - start - len(block)]
    return block
