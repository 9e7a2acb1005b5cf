"""Files as an agent reads them, and a job whose life a test tells."""

from __future__ import annotations

import asyncio
import os
import stat as status_bits
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import ReadPrecondition
from redbox.core.domain import UnixUser
from redbox.logs.agent_files import AgentFiles
from redbox.logs.generations import TAIL_BYTES, tail_hash
from redbox.logs.interfaces import (
    FileChunk,
    LogFileMissing,
    LogFileStat,
    LogFileUnreadable,
    OutputState,
)


@dataclass
class Disk(AgentFiles):
    """This machine's own files; `network` makes them pass for remote ones, `delay` makes reads slow."""

    pool: AgentPool = cast("AgentPool", None)  # noqa: RUF009 (it reads without an agent)
    user: UnixUser = UnixUser("alice", 2001)  # noqa: RUF009 (frozen)
    network: bool = False
    reads: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def read(
        self,
        path: str,
        offset: int,
        limit: int,
        *,
        expect: ReadPrecondition | None = None,
        fresh: bool = False,  # noqa: ARG002 (every read opens the file)
    ) -> FileChunk:
        self.reads += 1
        await self.gate.wait()
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise LogFileMissing(str(error)) from error
        except PermissionError as error:
            raise LogFileUnreadable(str(error)) from error
        try:
            return self._chunk(descriptor, offset, limit, expect)
        finally:
            os.close(descriptor)

    def _chunk(self, descriptor: int, offset: int, limit: int, expect: ReadPrecondition | None) -> FileChunk:
        status = os.fstat(descriptor)
        if not status_bits.S_ISREG(status.st_mode):
            raise LogFileUnreadable("not a regular file")
        stat = LogFileStat(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, self.network)
        before = os.pread(descriptor, min(offset, TAIL_BYTES), max(0, offset - TAIL_BYTES))
        replaced = expect is not None and (
            (expect.device, expect.inode) != (stat.device, stat.inode)
            or bool(expect.tail and expect.tail != tail_hash(before))
        )
        data = b"" if replaced else os.pread(descriptor, limit, offset)
        return FileChunk(stat, data, replaced)


class Life:
    """A job that a test moves through its life."""

    def __init__(self, path: Path, *, writing: bool = True) -> None:
        self._state = OutputState(str(path), run=int(writing), writing=writing, final=False)
        self._changed = asyncio.Event()

    def current(self) -> OutputState:
        return self._state

    async def changed(self, since: OutputState) -> OutputState:
        while self._state == since:
            self._changed.clear()
            await self._changed.wait()
        return self._state

    def starts(self, run: int = 1, began: float | None = None) -> None:
        self._move(writing=True, run=run, began=began)

    def waits(self) -> None:
        self._move(writing=False)

    def ends(self) -> None:
        self._move(writing=False, final=True)

    def _move(self, **changes: bool | float | None) -> None:
        self._state = replace(self._state, **changes)  # type: ignore[arg-type]
        self._changed.set()
