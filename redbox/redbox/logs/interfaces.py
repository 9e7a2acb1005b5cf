"""The interfaces of a job's output and of a file system, as `logs` uses them, and its errors.

LogError
├── LogFileMissing      there is no such file (yet)
│   └── LogFileNotVisible   its directory lists it, but this host cannot open it yet
├── LogFileUnreadable   the job's user has no permission, or it is not a regular file
├── LogFileUnavailable  the file system or the agent does not answer; a retry may succeed
│   └── LogFileFailing      one of them answers with an error that may pass, or stay for ever
├── NoSuchContainer     the job is not a pod's, or has no such container or start of it
└── JobRecordDeleted    the job was deleted while its log was read: whether the log is complete is unknown
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class LogError(Exception):
    """Base of the errors of reading a log."""


class LogFileMissing(LogError):
    """The file does not exist, as far as this host can see."""


class LogFileNotVisible(LogFileMissing):
    """The file exists: a network file system caches for a while that it did not."""


class LogFileUnreadable(LogError):
    """The job's own user cannot read the file; the message is the system's."""


class LogFileUnavailable(LogError):
    """Whether the file exists is unknown: a file system hangs, or an agent died."""


class LogFileFailing(LogFileUnavailable):
    """An I/O error, or no agent for this user: while the job lives, it is waited for."""


class NoSuchContainer(LogError):
    """Nothing of this name is among the containers that the pod's runner has reported."""


class JobRecordDeleted(LogError):
    """The submit was rejected, or the journal deleted the job, while its log was read."""


@dataclass(frozen=True, slots=True)
class LogFileStat:
    """The file that was read, by fstat and statfs."""

    device: int
    inode: int
    size: int
    modified_ns: int  # by the clock of the writing host, or of the file server
    network: bool  # on a file system that shows other hosts' writes late


@dataclass(frozen=True, slots=True)
class FileChunk:
    """Bytes from the requested offset, or none because the file was replaced."""

    stat: LogFileStat
    data: bytes
    replaced: bool


@dataclass(frozen=True, slots=True)
class OutputState:
    """The state of a job's output."""

    path: str | None  # None: not yet reported by Slurm
    run: int  # the newest that may have opened the file; all runs of a job that appends count as the first
    writing: bool  # the job may be writing now
    final: bool  # the job will never write again
    began: float | None = None  # start of that run, in seconds since 1970; None: unknown, or irrelevant


class OutputSource(Protocol):
    """The output of one job, or of one of its tasks."""

    def current(self) -> OutputState: ...

    async def changed(self, since: OutputState) -> OutputState:
        """Wait until the state differs from `since`, and return it."""
