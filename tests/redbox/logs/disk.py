"""Files as an agent reads them, and a job whose life a test tells."""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path

from redbox.logs.generations import TAIL_BYTES, tail_hash
from redbox.logs.interfaces import Expected, Facts, NotReadable, NotThere, Piece, Written


@dataclass
class Disk:
    """This machine's own files; `network` makes them pass for remote ones, `delay` makes reads slow."""

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
        expected: Expected | None = None,
        fresh: bool = False,  # noqa: ARG002 (every read opens anew here)
    ) -> Piece:
        self.reads += 1
        await self.gate.wait()
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise NotThere(str(error)) from error
        except PermissionError as error:
            raise NotReadable(str(error)) from error
        try:
            return self._piece(descriptor, offset, limit, expected)
        finally:
            os.close(descriptor)

    def _piece(self, descriptor: int, offset: int, limit: int, expected: Expected | None) -> Piece:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotReadable("it is no regular file")
        facts = Facts(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, self.network)
        before = os.pread(descriptor, min(offset, TAIL_BYTES), max(0, offset - TAIL_BYTES))
        another = expected is not None and (
            (expected.device, expected.inode) != (facts.device, facts.inode)
            or bool(expected.tail_hash and expected.tail_hash != tail_hash(before))
        )
        data = b"" if another else os.pread(descriptor, limit, offset)
        return Piece(facts, data, another)


class Life:
    """A job that a test moves through its life."""

    def __init__(self, path: Path, *, writing: bool = True) -> None:
        self._written = Written(str(path), run=int(writing), writing=writing, final=False)
        self._moved = asyncio.Event()

    def now(self) -> Written:
        return self._written

    async def changed(self, since: Written) -> Written:
        while self._written == since:
            self._moved.clear()
            await self._moved.wait()
        return self._written

    def starts(self, run: int = 1, began: float | None = None) -> None:
        self._move(writing=True, run=run, began=began)

    def waits(self) -> None:
        self._move(writing=False)

    def ends(self) -> None:
        self._move(writing=False, final=True)

    def _move(self, **changes: bool | float | None) -> None:
        self._written = replace(self._written, **changes)  # type: ignore[arg-type]
        self._moved.set()
