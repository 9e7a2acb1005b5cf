"""What HTTP asks of the logs: an answer's first byte, its generation, and the bytes from there on.

An answer ends cleanly when its reader should ask again (another generation began, it was silent for long, it
reached its limit), and it is `nothing_more` when the job is final and no byte is left. So a reader needs no
protocol but HTTP: it asks with the generation and offset where it stands, until there is nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from redbox.core.domain import UnixUser
from redbox.logs.generations import resumed
from redbox.logs.interfaces import Files, OutOfReach, Source
from redbox.logs.pacing import Budget, Pace
from redbox.logs.settings import LogSettings
from redbox.logs.tail import PIECE_BYTES, Bytes, Ended, Tail

LINES_BYTES = 64 << 20  # how far back the last lines are looked for, in a file that has hardly any
BLOCK_BYTES = PIECE_BYTES  # less would have an agent read each piece many times over
RESTING = 1000  # tails of 5 KiB without a reader: an answer that ends is asked for again soon


@dataclass(frozen=True, slots=True)
class Query:
    """Where a reader stands, and how much it wants."""

    generation: str | None = None
    offset: int = 0
    tail_bytes: int | None = None
    tail_lines: int | None = None
    limit: int | None = None
    follow: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """`pieces` begin at `offset` of `generation`; `nothing_more`: there are none and will be none."""

    generation: str
    offset: int
    pieces: AsyncIterator[bytes]
    nothing_more: bool = False


@dataclass
class Logs:
    """All files that somebody reads now, each looked at once, and those that somebody read last."""

    settings: LogSettings
    clock: Callable[[], float]
    pace: Pace = field(default_factory=Pace)
    _tails: dict[tuple[str, ...], tuple[Tail, int]] = field(default_factory=dict)
    _resting: OrderedDict[tuple[str, ...], Tail] = field(default_factory=OrderedDict)
    _budget: Budget | None = None

    @asynccontextmanager
    async def read(
        self, name: tuple[str, ...], user: UnixUser, files: Files, source: Source, query: Query
    ) -> AsyncIterator[Answer]:
        """An answer for one reader; `name` is the file's name here: readers of one name share its tail."""
        with self._tail(name, user, files, source) as tail:
            yield await self._answer(tail, query)

    @contextlib.contextmanager
    def _tail(self, name: tuple[str, ...], user: UnixUser, files: Files, source: Source) -> Iterator[Tail]:
        tail, readers = self._tails.get(name) or (self._awoken(name, user, files, source), 0)
        self._tails[name] = (tail, readers + 1)
        try:
            yield tail
        finally:
            self._release(name)

    def _awoken(self, name: tuple[str, ...], user: UnixUser, files: Files, source: Source) -> Tail:
        """The one that rests, which knows more of the file than a reader can say, or a new one."""
        self._budget = self._budget or Budget(self.settings.looks_per_second, self.clock)
        return self._resting.pop(name, None) or Tail(
            files=files,
            source=source,
            budget=self._budget,
            user=user.uid,
            clock=self.clock,
            pace=self.pace,
            settle_network_s=self.settings.settle_s,
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
        if len(self._resting) > RESTING:
            self._resting.popitem(last=False)

    async def _answer(self, tail: Tail, query: Query) -> Answer:
        """Find where it begins; a follower's answer begins with the first byte that there is for it."""
        if query.follow:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.silent_s):
                    await tail.known(query.generation, query.offset)
                    query = await self._in_its_place(tail, query)
                    await tail.at(query.generation, query.offset)
        else:
            await tail.known(query.generation, query.offset)
        claimed = resumed(query.generation or "")
        keeps = claimed is not None and (tail.generation is None or tail.is_now(str(claimed)))
        generation = str(claimed if keeps else tail.generation or "")
        offset = await self._start(tail, query, generation)
        nothing_more = tail.complete and offset >= tail.shown
        return Answer(generation, offset, self._pieces(tail, generation, offset, query), nothing_more)

    async def _in_its_place(self, tail: Tail, query: Query) -> Query:
        """The last lines are the last that there are now; what comes while one waits for more is all new."""
        if query.tail_bytes is None and query.tail_lines is None:
            return query
        generation = str(tail.generation) if tail.generation else None
        offset = await self._start(tail, query, generation) if generation else 0
        return replace(query, generation=generation, offset=offset, tail_bytes=None, tail_lines=None)

    async def _start(self, tail: Tail, query: Query, generation: str) -> int:
        if query.tail_bytes is not None:
            return max(0, tail.shown - query.tail_bytes)
        if query.tail_lines is not None:
            return await _start_of_lines(tail, generation, query.tail_lines)
        return query.offset if query.generation in {None, generation} else 0

    async def _pieces(self, tail: Tail, generation: str, offset: int, query: Query) -> AsyncIterator[bytes]:
        end = tail.shown if not query.follow else None
        left = query.limit if query.limit is not None else float("inf")
        while generation and left > 0 and (end is None or offset < end):
            found = await (
                self._later(tail, generation, offset) if query.follow else tail.at(generation, offset)
            )
            if isinstance(found, Ended):
                return
            data = found.data[: int(min(left, len(found.data)))]
            yield data
            offset += len(data)
            left -= len(data)

    async def _later(self, tail: Tail, generation: str, offset: int) -> Bytes | Ended:
        """As a follower waits: also for a file system that hangs, but for ever neither."""
        try:
            async with asyncio.timeout(self.settings.silent_s):
                return await _as_soon_as_in_reach(tail, generation, offset)
        except TimeoutError:
            return Ended(complete=False)


async def _as_soon_as_in_reach(tail: Tail, generation: str, offset: int) -> Bytes | Ended:
    while True:
        try:
            return await tail.at(generation, offset)
        except OutOfReach:
            await asyncio.sleep(tail.pace.out_of_reach)


async def _start_of_lines(tail: Tail, generation: str, lines: int) -> int:
    """The offset of the last so many lines, found from the end in blocks, or of the last 64 MiB."""
    if lines == 0:
        return tail.shown
    end, missing = tail.shown, lines
    earliest = max(0, end - LINES_BYTES)
    first = True
    while end > earliest:
        start = max(0, end - BLOCK_BYTES)
        block = await _block(tail, generation, start, end)
        searched = block[:-1] if first and block.endswith(b"\n") else block
        position = len(searched)
        while missing and (position := searched.rfind(b"\n", 0, position)) >= 0:
            missing -= 1
        if not missing:
            return start + position + 1
        end, first = start, False
    return earliest


async def _block(tail: Tail, generation: str, start: int, end: int) -> bytes:
    block = b""
    while start + len(block) < end:
        found = await tail.at(generation, start + len(block))
        if not isinstance(found, Bytes):
            break
        block += found.data[: end - start - len(block)]
    return block
