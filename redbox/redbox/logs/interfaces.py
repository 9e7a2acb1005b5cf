"""What the logs need to know of a job and of a file system, and the errors in between.

LogError
├── NotThere        no file of that name (yet)
│   └── NotYetShown     its directory lists it, but this host does not open it yet
├── NotReadable     the user's own rights do not reach it, or it is no regular file
├── OutOfReach      the file system or the agent does not answer; asking again is right
└── Forgotten       red-box knows the job no more: what it wrote is neither whole nor lacking
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class LogError(Exception):
    """Base of what can go wrong with a file."""


class NotThere(LogError):
    """It does not exist, as far as this host can see."""


class NotYetShown(NotThere):
    """It is there: a network file system remembers for a while that it was not."""


class NotReadable(LogError):
    """It cannot be read by the job's own user: the system's words say why."""


class OutOfReach(LogError):
    """Nobody knows: a hanging file system, an agent that died."""


class Forgotten(LogError):
    """Its submit was refused, or it was deleted from the journal while its log was read."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What fstat and statfs say of the file that was read."""

    device: int
    inode: int
    size: int
    modified_ns: int  # by the clock of whoever wrote, or of the file server
    network: bool  # on a file system that shows other hosts' writes late


@dataclass(frozen=True, slots=True)
class Expected:
    """The file that a reader believes to be in: if it is another one, no byte of it is returned."""

    device: int
    inode: int
    tail_hash: str  # of the 4 KiB before the offset; empty at offset 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes from the offset that was asked for, or none because the file is `another` one."""

    facts: Facts
    data: bytes
    another: bool


class Files(Protocol):
    """Reading files as the job's user."""

    async def read(
        self, path: str, offset: int, limit: int, *, expected: Expected | None = None, fresh: bool = False
    ) -> Piece:
        """Read; `fresh` opens the file anew through its directory, which a network file system needs."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """What is known of a job's output at this moment."""

    path: str | None  # None: Slurm has not said
    run: int  # the newest that may have opened the file; of a job that appends all are one
    writing: bool  # the job may be writing now
    final: bool  # it never will again
    began: float | None = None  # when that run did, in seconds since 1970; None: not known, or no matter


class Source(Protocol):
    """A job as the logs see it."""

    def now(self) -> Written:
        """The latest truth."""
        ...

    async def changed(self, since: Written) -> Written:
        """Wait until it is no longer as it was."""
        ...
