"""One file, looked at once for all who follow it.

A reader asks for the bytes at its offset. Where they are known to be there, they are read; readers who stand
at the same place share one read. Where the file ends, all who wait share one look at a time, paced by how
long the file has been silent. Nobody waiting means nobody looking: a tail costs nothing then. It rests, and
still knows by its last bytes whether the file was cut when a reader comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from redbox.logs.generations import (
    TAIL_BYTES,
    Generation,
    doubtful_hole,
    follows,
    resumed,
    run_of,
    shown_length,
    tail_hash,
)
from redbox.logs.interfaces import Expected, Facts, Files, NotThere, NotYetShown, Piece, Source, Written
from redbox.logs.pacing import Budget, Pace, pause_after

PIECE_BYTES = 1 << 20
NUL_PATIENCE_S = 60.0
LOCAL_COST = 0.25  # of a look at a network file
DOUBTFUL_BYTES = 8 << 20  # of a file that another host is writing: its newest bytes may not be here yet
LAST_LOOKS_S = 30.0  # how long to look on after a run has stopped and before the next begins


@dataclass(frozen=True, slots=True)
class Bytes:
    """What stands at an offset of a generation."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more will come at this offset: of this generation (`complete` False), or at all."""

    complete: bool


@dataclass
class Tail:
    """The newest known end of one file, and how to learn more."""

    files: Files
    source: Source
    budget: Budget
    user: int
    clock: Callable[[], float]
    pace: Pace = field(default_factory=Pace)
    settle_network_s: float = 5.0

    generation: Generation | None = None
    shown: int = 0  # how far the file's bytes are known and shown
    complete: bool = False
    _known_cuts: int = 0  # that readers came back with
    _cut_ns: int | None = None  # when the file was modified that was seen to be cut while its run went on
    _tail: bytes = b""  # the last bytes before `shown`, as far as they were read here
    _tail_hash: str = ""
    _newest: tuple[int, bytes] = (0, b"")
    _facts: Facts | None = None
    _nul_since: float | None = None
    _hole_at: int | None = None  # NULs amid the newest bytes, which a second new open must confirm
    _grew_at: float = 0.0
    _opened_at: float = float("-inf")
    _unseen: bool = True  # nobody has looked yet, or not since it rested
    _final_seen: bool = False  # it was looked at since the job was final
    _equal_since: float | None = None  # final, and the size has not changed since
    _more: bool = False  # the last look found bytes, and there are more behind them
    _look: asyncio.Task[None] | None = None
    _reads: dict[int, asyncio.Task[Piece]] = field(default_factory=dict)

    async def at(self, generation: str | None, offset: int) -> Bytes | Ended:
        """The bytes there, as soon as there are some; `generation` None is the one that is there now."""
        while True:
            if self.generation is not None and generation is not None and not self.is_now(generation):
                return Ended(complete=False)
            if self.generation is not None and offset < self.shown:
                data = await self._bytes_at(offset)
                if data:
                    return Bytes(data)
            elif self.complete:
                return Ended(complete=True)
            else:
                await self._learn()

    def is_now(self, generation: str) -> bool:
        """Whether what is read now is what a reader came back with."""
        claimed = resumed(generation)
        if claimed is None or self.generation is None or not claimed.is_now(self.generation):
            return False
        self._known_cuts = max(self._known_cuts, claimed.cuts)
        return True

    async def known(self, generation: str | None = None, offset: int = 0) -> None:
        """Look until its end is found, as it is now; one that is shorter than what was read was cut."""
        if self._nothing_to_see(self.source.now()):
            return
        await self._learn_end()
        if generation is None or not self._is_short_of(generation, offset):
            return
        give_up_at = self.clock() + self._settle_s()  # another client of the file system may have shown more
        while self.clock() < give_up_at and self._is_short_of(generation, offset) and not self.complete:
            await self._learn_end()
        if self.generation is not None and self._facts is not None and self._is_short_of(generation, offset):
            self._begin(self.generation.cut(self._known_cuts), self._facts)

    async def _learn_end(self) -> None:
        await self._learn()
        while self._more and not self.complete:
            await self._learn()

    def _is_short_of(self, generation: str, offset: int) -> bool:
        return self.is_now(generation) and self.size < offset

    def rest(self) -> None:
        """Nobody reads it now: it keeps what tells this file from another, and finds the rest out anew."""
        for task in (self._look, *self._reads.values()):
            if task is not None:
                task.cancel()
        self._look, self._reads, self._newest = None, {}, (0, b"")
        self.complete, self._final_seen, self._equal_since = False, False, None
        self._nul_since, self._hole_at, self._unseen = None, None, True

    @property
    def size(self) -> int:
        """As it was at the last look."""
        return self._facts.size if self._facts else 0

    # -- reading what is there

    async def _bytes_at(self, offset: int) -> bytes | None:
        start, newest = self._newest
        if start <= offset < start + len(newest):
            return newest[offset - start : self.shown - start]
        piece = await self._shared_read(offset)
        if piece.another or not piece.data:
            self._grew_at = self.clock()
            await self._learn()
            return None
        return piece.data[: self.shown - offset]

    async def _shared_read(self, offset: int) -> Piece:
        task = self._reads.get(offset)
        if task is None:
            limit = min(PIECE_BYTES, self.shown - offset)
            task = asyncio.ensure_future(self._read(offset, limit, expected=self._same_file()))
            self._reads[offset] = task
            task.add_done_callback(_heard)
            task.add_done_callback(lambda _: self._reads.pop(offset, None))
        return await asyncio.shield(task)

    def _read(
        self, offset: int, limit: int, *, expected: Expected | None, fresh: bool = False
    ) -> Coroutine[Any, Any, Piece]:
        written = self.source.now()
        if written.path is None:
            raise NotThere("Slurm has not said where the output goes")
        return self.files.read(written.path, offset, limit, expected=expected, fresh=fresh)

    def _same_file(self) -> Expected | None:
        return Expected(self._facts.device, self._facts.inode, "") if self._facts else None

    # -- learning what is new

    async def _learn(self) -> None:
        """One look, shared by all who wait."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._look_once())
            self._look.add_done_callback(_heard)
        await asyncio.shield(self._look)

    async def _look_once(self) -> None:
        written = self.source.now()
        if self._nothing_to_see(written):
            await self.source.changed(written)
            return
        await self._pause(written)
        written = self.source.now()
        await self.budget.take(self.user, LOCAL_COST if self._is_local() else 1.0)
        try:
            piece = await self._read_new(written)
        except NotThere as error:
            self._missing(written, is_listed=isinstance(error, NotYetShown))
        else:
            self._take(piece, written)

    def _is_local(self) -> bool:
        return self._facts is not None and not self._facts.network

    def _nothing_to_see(self, written: Written) -> bool:
        """It waits for its first or next run: only Slurm can change that."""
        if written.writing or written.final:
            return False
        if self._unseen:
            return not written.run  # the run before may have written what no reader has
        return self.generation is None or self.clock() - self._grew_at > LAST_LOOKS_S

    async def _pause(self, written: Written) -> None:
        seconds = self._rest_of_settling() if written.final else self._pace()
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.source.changed(written), seconds)

    def _pace(self) -> float:
        if self._more or self._unseen:
            return 0.0
        return pause_after(self.clock() - self._grew_at, self.pace)

    def _rest_of_settling(self) -> float:
        if self._more or not self._final_seen:
            return 0.0
        if self._equal_since is None:
            return self.pace.first
        return max(0.05, self._equal_since + self._settle_s() - self.clock())

    def _settle_s(self) -> float:
        return self.settle_network_s if self._facts is None or self._facts.network else 0.0

    async def _read_new(self, written: Written) -> Piece:
        expected = None
        if self._facts is not None:
            expected = Expected(self._facts.device, self._facts.inode, self._tail_hash)
        return await self._read(self.shown, PIECE_BYTES, expected=expected, fresh=self._wants_fresh(written))

    def _wants_fresh(self, written: Written) -> bool:
        """Local files are seen through an open descriptor; network ones only after a new open."""
        if written.final or self._unseen or self._hole_at is not None:
            return True
        return not self._is_local() and self.clock() - self._opened_at >= self.pace.reopen_network

    # -- what a look says

    def _missing(self, written: Written, *, is_listed: bool) -> None:
        self._grew_at = self._grew_at or self.clock()
        self._final_seen, self._unseen = written.final, False
        if is_listed:
            self._equal_since = None
        elif written.final:
            self._settle(0)

    def _take(self, piece: Piece, written: Written) -> None:
        run = run_of(piece.facts, written, self.generation, self._facts, self._cut_ns)
        generation = follows(self.generation, piece, run, self.shown, self._known_cuts)
        is_fresh = self._wants_fresh(written)
        self._final_seen, self._unseen = written.final, False
        if generation != self.generation:
            self._begin(generation, piece.facts)
            return
        self._opened_at = self.clock() if is_fresh else self._opened_at
        self._facts = piece.facts
        self._grow(self._before_hole(piece, is_fresh=is_fresh), written)
        if written.final:
            self._settle(piece.facts.size)

    def _begin(self, generation: Generation, facts: Facts) -> None:
        """Another file, or the same one cut: who reads the old one is told, and begins at its first byte."""
        doubtful = DOUBTFUL_BYTES if facts.network else TAIL_BYTES
        goes_on = self.generation is not None and self.generation.run == generation.run
        self._cut_ns = facts.modified_ns if goes_on else None
        self.generation, self._facts, self._opened_at = generation, facts, self.clock()
        self.shown, self._tail, self._tail_hash = max(0, facts.size - doubtful), b"", ""
        self._newest, self._nul_since, self._equal_since, self._hole_at = (0, b""), None, None, None
        self._grew_at, self._more = self.clock(), facts.size > 0

    def _before_hole(self, piece: Piece, *, is_fresh: bool) -> bytes:
        """A network file's bytes as far as they are no patchwork of older and newer pages."""
        hole = doubtful_hole(piece.data, self.shown) if piece.facts.network else None
        if hole is None or self._hole_at == self.shown + hole:
            self._hole_at = None
            return piece.data
        self._hole_at = self.shown + hole if is_fresh else -1
        return piece.data[:hole]

    def _grow(self, data: bytes, written: Written) -> None:
        now = self.clock()
        patience = self._settle_s() if written.final else NUL_PATIENCE_S
        length = shown_length(data, nul_since=self._nul_since, now=now, patience=patience)
        self._newest = (
            self.shown,
            data[:length],
        )  # a look that finds nothing lets go of what the last one found
        if length:
            self.shown += length
            self._tail = (self._tail + data[:length])[-TAIL_BYTES:]
            self._tail_hash = tail_hash(self._tail) if len(self._tail) >= min(TAIL_BYTES, self.shown) else ""
            self._grew_at = now
        held_longer = self._nul_since if not length else None
        self._nul_since = None if length == len(data) else (held_longer or now)
        self._more = length > 0 and self.size > self.shown

    def _settle(self, size: int) -> None:
        """Final, and looked at freshly: complete when two looks far enough apart have found no more."""
        now = self.clock()
        if self.shown < size or self._equal_since is None:
            self._equal_since = now if self.shown >= size else None
            return
        self.complete = now - self._equal_since >= self._settle_s()


def _heard(task: asyncio.Task[Any]) -> None:
    """Its fault goes to whoever waits; where nobody does any more, nobody misses it."""
    if not task.cancelled():
        task.exception()
