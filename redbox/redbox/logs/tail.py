"""One file, read once for all its readers.

The states of a tail, which are those of the job's output and of its readers:

    resting ──first reader──> waiting ──a run starts──> polling ──job is final──> settling ──> complete
       ^                         ^                       │   ^                     │    ^   twice the same
       │                         └──30 s after a run ────┘   │                     └────┘   size, settle_s
       │                            stopped (requeue)        └── read again         grown   apart
       └─────────────────────── last reader leaves, from any state

In *waiting* only Slurm can change anything, so nothing is read. In *polling* and *settling* all readers at
the end of the file share one read at a time:

    pause ──> budget ──> read at `shown` ─┬─> missing:  poll on; of a final job, settle
                                          ├─> replaced or truncated:  start the next generation
                                          └─> same file:  hold back NULs and holes, show the bytes before

Bytes before `shown` are read on demand; readers of the same offset share one read. A *resting* tail costs
nothing, and keeps the hash of its last bytes, which shows a truncation when the file is read again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from redbox.agents.protocol.answers import ReadPrecondition
from redbox.logs.agent_files import AgentFiles
from redbox.logs.generations import (
    TAIL_BYTES,
    Generation,
    hole_before_page_end,
    next_generation,
    parse_generation,
    run_of,
    tail_hash,
    visible_length,
)
from redbox.logs.interfaces import (
    FileChunk,
    LogFileMissing,
    LogFileNotVisible,
    LogFileStat,
    OutputSource,
    OutputState,
)
from redbox.logs.pacing import PollIntervals, ReadBudget, pause_after

CHUNK_BYTES = 1 << 20
NUL_HOLD_S = 60.0
LOCAL_COST = 0.25  # of a read of a network file
UNSETTLED_BYTES = 8 << 20  # of a file that another host is writing: its newest bytes may not be here yet
POLL_AFTER_RUN_S = 30.0  # how long to read on after a run has stopped and before the next starts


@dataclass
class Tail:
    """The newest shown end of one file; the states are drawn above."""

    files: AgentFiles
    output: OutputSource
    budget: ReadBudget
    user: int
    clock: Callable[[], float]
    intervals: PollIntervals = field(default_factory=PollIntervals)
    settle_network_s: float = 5.0

    generation: Generation | None = None
    shown: int = 0  # up to here the file's bytes are settled, and sent to readers
    complete: bool = False
    _reader_cuts: int = 0  # the most truncations that a reader has counted
    _cut_ns: int | None = None  # modification time of the file when it was truncated while its run went on
    _tail: bytes = b""  # the last bytes before `shown`, as far as they were read here
    _tail_hash: str = ""
    _newest: tuple[int, bytes] = (0, b"")  # the offset and bytes of the last read
    _stat: LogFileStat | None = None
    _nul_since: float | None = None
    _hole_at: int | None = None  # NULs amid the newest bytes, which a second fresh open must confirm
    _grew_at: float = 0.0
    _opened_at: float = float("-inf")
    _is_stale: bool = True  # not read yet, or not since the tail rested
    _read_when_final: bool = False  # the last read was made after the job became final
    _unchanged_since: float | None = None  # the job is final, and the size has not changed since
    _more: bool = False  # the last read found bytes, and there are more behind them
    _refreshing: asyncio.Task[None] | None = None
    _reads: dict[int, asyncio.Task[FileChunk]] = field(default_factory=dict)

    async def read_at(self, generation: str | None, offset: int) -> bytes | None:
        """Wait for bytes at the offset; None: the log is complete, or has another generation now.

        `generation` None is the current one.
        """
        while True:
            if self.generation is not None and generation is not None and not self.is_current(generation):
                return None
            if self.generation is not None and offset < self.shown:
                data = await self._shown_bytes(offset)
                if data:
                    return data
            elif self.complete:
                return None
            else:
                await self._refresh()

    def is_current(self, generation: str) -> bool:
        """Whether a reader's generation continues in the current one."""
        claimed = parse_generation(generation)
        if claimed is None or self.generation is None or not claimed.continues_in(self.generation):
            return False
        self._reader_cuts = max(self._reader_cuts, claimed.cuts)
        return True

    async def find_end(self, generation: str | None = None, offset: int = 0) -> None:
        """Read up to the current end; a file that ends before the reader's offset was truncated."""
        if self._waits_for_run(self.output.current()):
            return
        await self._read_to_end()
        if generation is None or not self._ends_before(generation, offset):
            return
        give_up_at = self.clock() + self._settle_s()  # another client of the file system may have seen more
        while self.clock() < give_up_at and self._ends_before(generation, offset) and not self.complete:
            await self._read_to_end()
        if self.generation is not None and self._stat is not None and self._ends_before(generation, offset):
            self._start_generation(self.generation.cut(self._reader_cuts), self._stat)

    async def _read_to_end(self) -> None:
        await self._refresh()
        while self._more and not self.complete:
            await self._refresh()

    def _ends_before(self, generation: str, offset: int) -> bool:
        return self.is_current(generation) and self.size < offset

    def rest(self) -> None:
        """Stop reading: keep what identifies the file, and forget what must be read again."""
        for task in (self._refreshing, *self._reads.values()):
            if task is not None:
                task.cancel()
        self._refreshing, self._reads, self._newest = None, {}, (0, b"")
        self.complete, self._read_when_final, self._unchanged_since = False, False, None
        self._nul_since, self._hole_at, self._is_stale = None, None, True

    @property
    def size(self) -> int:
        return self._stat.size if self._stat else 0

    # -- bytes before `shown`

    async def _shown_bytes(self, offset: int) -> bytes | None:
        start, newest = self._newest
        if start <= offset < start + len(newest):
            return newest[offset - start : self.shown - start]
        chunk = await self._shared_read(offset)
        if chunk.replaced or not chunk.data:
            self._grew_at = self.clock()
            await self._refresh()
            return None
        return chunk.data[: self.shown - offset]

    async def _shared_read(self, offset: int) -> FileChunk:
        task = self._reads.get(offset)
        if task is None:
            limit = min(CHUNK_BYTES, self.shown - offset)
            task = asyncio.ensure_future(self._read(offset, limit))
            self._reads[offset] = task
            task.add_done_callback(_retrieve_exception)
            task.add_done_callback(lambda _: self._reads.pop(offset, None))
        return await asyncio.shield(task)

    def _read(
        self, offset: int, limit: int, hash_before: str = "", *, fresh: bool = False
    ) -> Coroutine[Any, Any, FileChunk]:
        """Read from the file of the last read, which is decided now, not when the coroutine runs."""
        path = self.output.current().path
        if path is None:
            raise LogFileMissing("Slurm has not reported the path of the job's output yet")
        expect = ReadPrecondition(self._stat.device, self._stat.inode, hash_before) if self._stat else None
        return self.files.read(path, offset, limit, expect=expect, fresh=fresh)

    # -- one read at the end, shared by all readers

    async def _refresh(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._read_end_once())
            self._refreshing.add_done_callback(_retrieve_exception)
        await asyncio.shield(self._refreshing)

    async def _read_end_once(self) -> None:
        output = self.output.current()
        if self._waits_for_run(output):
            await self.output.changed(output)
            return
        await self._pause(output)
        output = self.output.current()
        await self.budget.take(self.user, LOCAL_COST if self._is_local() else 1.0)
        is_fresh = self._needs_fresh_open(output)
        try:
            chunk = await self._read(self.shown, CHUNK_BYTES, self._tail_hash, fresh=is_fresh)
        except LogFileMissing as error:
            self._apply_missing(output, is_listed=isinstance(error, LogFileNotVisible))
        else:
            self._apply(chunk, output)

    def _is_local(self) -> bool:
        return self._stat is not None and not self._stat.network

    def _waits_for_run(self, output: OutputState) -> bool:
        """Whether the first or next run has not started: only Slurm can change that."""
        if output.writing or output.final:
            return False
        if self._is_stale:
            return not output.run  # the run before may have written bytes that were never read
        return self.generation is None or self.clock() - self._grew_at > POLL_AFTER_RUN_S

    async def _pause(self, output: OutputState) -> None:
        seconds = self._settle_pause() if output.final else self._poll_pause()
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.output.changed(output), seconds)

    def _poll_pause(self) -> float:
        if self._more or self._is_stale:
            return 0.0
        return pause_after(self.clock() - self._grew_at, self.intervals)

    def _settle_pause(self) -> float:
        if self._more or not self._read_when_final:
            return 0.0
        if self._unchanged_since is None:
            return self.intervals.first
        return max(0.05, self._unchanged_since + self._settle_s() - self.clock())

    def _settle_s(self) -> float:
        return 0.0 if self._is_local() else self.settle_network_s

    def _needs_fresh_open(self, output: OutputState) -> bool:
        """Whether the file must be opened again: an open descriptor shows new bytes of local files only."""
        if output.final or self._is_stale or self._hole_at is not None:
            return True
        return not self._is_local() and self.clock() - self._opened_at >= self.intervals.reopen_network

    # -- the result of a read

    def _apply_missing(self, output: OutputState, *, is_listed: bool) -> None:
        self._grew_at = self._grew_at or self.clock()
        self._read_when_final, self._is_stale = output.final, False
        if is_listed:
            self._unchanged_since = None
        elif output.final:
            self._settle(0)

    def _apply(self, chunk: FileChunk, output: OutputState) -> None:
        run = run_of(chunk.stat, output, self.generation, self._stat, self._cut_ns)
        generation = next_generation(self.generation, chunk, run, self.shown, self._reader_cuts)
        is_fresh = self._needs_fresh_open(output)
        self._read_when_final, self._is_stale = output.final, False
        if generation != self.generation:
            self._start_generation(generation, chunk.stat)
            return
        self._opened_at = self.clock() if is_fresh else self._opened_at
        self._stat = chunk.stat
        self._append(self._before_hole(chunk, is_fresh=is_fresh), output)
        if output.final:
            self._settle(chunk.stat.size)

    def _start_generation(self, generation: Generation, stat: LogFileStat) -> None:
        """Start at another file, or at the same one truncated: readers of the old generation get its end."""
        unsettled = UNSETTLED_BYTES if stat.network else TAIL_BYTES
        is_same_run = self.generation is not None and self.generation.run == generation.run
        self._cut_ns = stat.modified_ns if is_same_run else None
        self.generation, self._stat, self._opened_at = generation, stat, self.clock()
        self.shown, self._tail, self._tail_hash = max(0, stat.size - unsettled), b"", ""
        self._newest, self._nul_since, self._unchanged_since, self._hole_at = (0, b""), None, None, None
        self._grew_at, self._more = self.clock(), stat.size > 0

    def _before_hole(self, chunk: FileChunk, *, is_fresh: bool) -> bytes:
        """Return a network file's bytes up to where pages of different age may meet."""
        hole = hole_before_page_end(chunk.data, self.shown) if chunk.stat.network else None
        if hole is None or self._hole_at == self.shown + hole:
            self._hole_at = None
            return chunk.data
        self._hole_at = self.shown + hole if is_fresh else -1
        return chunk.data[:hole]

    def _append(self, data: bytes, output: OutputState) -> None:
        now = self.clock()
        nul_hold_s = self._settle_s() if output.final else NUL_HOLD_S
        length = visible_length(data, nul_since=self._nul_since, now=now, nul_hold_s=nul_hold_s)
        self._newest = self.shown, data[:length]  # also when empty: a silent file holds no memory
        if length:
            self.shown += length
            self._tail = (self._tail + data[:length])[-TAIL_BYTES:]
            self._tail_hash = tail_hash(self._tail) if len(self._tail) >= min(TAIL_BYTES, self.shown) else ""
            self._grew_at = now
        held_longer = self._nul_since if not length else None
        self._nul_since = None if length == len(data) else (held_longer or now)
        self._more = length > 0 and self.size > self.shown

    def _settle(self, size: int) -> None:
        """Complete once the job is final and two reads far enough apart have found the same size."""
        now = self.clock()
        if self.shown < size or self._unchanged_since is None:
            self._unchanged_since = now if self.shown >= size else None
            return
        self.complete = now - self._unchanged_since >= self._settle_s()


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Readers that still wait get the exception; without any, asyncio would log it as never retrieved."""
    if not task.cancelled():
        task.exception()
