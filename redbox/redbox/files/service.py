"""Listing, downloading and uploading files of a job, by the agent of its user.

Paths are relative to the job's working directory. Symbolic links and `..` are followed: the kernel checks the
permissions of the user.
"""

from __future__ import annotations

import errno
import posixpath
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentRefused, RequestFailed, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import FileStatus, GlobMatch, GlobResult, OmittedFile
from redbox.core.clock import Clock, SystemClock
from redbox.core.domain import JobRef
from redbox.jobs.errors import Forbidden, JobNotFound, JobsBusy, NotAcceptable
from redbox.jobs.service import JobService
from redbox.observability.sanitize import encodable
from redbox_api.models import FileEntry, FileList

MAX_FOUND = 10_000
MAX_ARCHIVED = 4_000
UPLOAD_S = 3600.0
WILDCARD = re.compile(r"[*?[]")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """From `start` up to and without `end`; the whole file instead if its tag is no longer `if_tag`."""

    start: int = 0
    end: int | None = None
    if_tag: str | None = None


@dataclass(frozen=True, slots=True)
class Download:
    """A version of a file, identified by its tag, and the range that is sent."""

    size: int
    tag: str
    start: int
    end: int
    pieces: AsyncIterator[bytes]


@dataclass
class JobFileService:
    """Files in the working directories of jobs."""

    jobs: JobService
    pool: AgentPool
    clock: Clock = field(default_factory=SystemClock)

    async def find(self, ref: JobRef, patterns: list[str]) -> FileList:
        """Return the files that the globs match, sorted by path."""
        async with self._agent(ref) as (agent, directory):
            matches = await _glob(agent, directory, [_relative(glob) for glob in patterns], MAX_FOUND)
        items = sorted((_entry(match) for match in matches.found), key=lambda entry: entry.path)
        return FileList(items=items, truncated=matches.truncated)

    async def download(self, ref: JobRef, path: str, byte_range: ByteRange) -> Download:
        """Open one regular file; bytes appended later are not sent."""
        async with self._agent(ref) as (agent, directory):
            whole = _within(directory, path)
            status = await agent.stat(whole)
            if status.kind not in {"file", "null"}:
                raise NotAcceptable(
                    f"{path} is a {status.kind}: only regular files can be downloaded; use archive"
                )
            tag = f'"{status.inode:x}-{status.size:x}-{status.modified_ns:x}"'
            is_current = byte_range.if_tag in {None, tag}
            start, end = (byte_range.start, byte_range.end) if is_current else (0, None)
            end = status.size if end is None else min(end, status.size)
            pieces = _bytes(agent, whole, start, max(0, end - start), status)
            return Download(status.size, tag, start, end, pieces)

    async def archive(self, ref: JobRef, patterns: list[str]) -> AsyncIterator[bytes]:
        """Return a tar of the files that the globs match, with names and modes; symbolic links stay links."""
        async with self._agent(ref) as (agent, working_directory):
            directory, globs = _archive_root(working_directory, patterns)
            matches = await _glob(agent, directory, globs, MAX_ARCHIVED)
            if matches.truncated:
                raise NotAcceptable(
                    f"the globs match more than {MAX_ARCHIVED} paths; name a directory instead"
                )
            if not matches.found:
                raise JobNotFound(f"the globs match nothing in {directory}")
            return _tar(agent, directory, [match.path for match in matches.found])

    async def upload(self, ref: JobRef, path: str, mode: int, pieces: AsyncIterator[bytes]) -> int:
        """Write a file whole under its name, or not at all, and return its size."""
        async with self._agent(ref) as (agent, directory):
            whole = _within(directory, path)
            if posixpath.dirname(path):
                await agent.make_directory(posixpath.dirname(whole))
            facts = await agent.write(whole, pieces, mode=mode, deadline=UPLOAD_S)
            return facts.size

    @asynccontextmanager
    async def _agent(self, ref: JobRef) -> AsyncIterator[tuple[AgentClient, str]]:
        record = await self.jobs.locate(ref.caller, ref.key, ref.attempt)
        directory = record.status.working_directory or record.working_directory
        if not directory:
            raise JobNotFound("Slurm has not reported the job's working directory yet")
        waits = record.awaits_output(self.clock.now())
        try:
            agent = await self.pool.agent(record.user, "files")
            yield agent, directory
        except AgentRefused as refused:
            if not waits:
                raise
            raise JobsBusy(refused.detail, retry_after=10) from refused
        except SystemCallFailed as fault:
            if fault.is_missing:
                raise JobNotFound(f"{fault.path}: {fault.strerror}") from fault
            if fault.is_passing and (waits or fault.errno != errno.EIO):
                raise JobsBusy(f"{fault.path}: {fault.strerror}", retry_after=3) from fault
            raise Forbidden(f"{fault.path}: {fault.strerror}, as user {record.user.name}") from fault
        except RequestFailed as error:
            raise NotAcceptable(str(error)) from error


async def _glob(agent: AgentClient, directory: str, patterns: list[str], limit: int) -> GlobResult:
    """The matches; none may be left out because a network file system shows it late."""
    result = await agent.glob(directory, patterns, limit=limit)
    for match in result.found:
        if match.kind == "listed":
            raise SystemCallFailed(
                errno.EAGAIN, "its directory lists it, but it cannot be read yet", match.path
            )
    return result


def _within(directory: str, path: str) -> str:
    return posixpath.join(directory, _without_nul(path))


def _without_nul(path: str) -> str:
    if "\0" in path:
        raise NotAcceptable(f"{path!r}: a file's name cannot contain NUL")
    return path


def _relative(pattern: str) -> str:
    _without_nul(pattern)
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise NotAcceptable(
            f"{pattern}: a glob must be relative to the job's working directory, without `..`"
        )
    return pattern


def _archive_root(working_directory: str, patterns: list[str]) -> tuple[str, list[str]]:
    """Return the directory of a tar and the globs in it: names in a tar are always relative."""
    if len(patterns) != 1 or not patterns[0].startswith("/"):
        return working_directory, [_relative(pattern) for pattern in patterns]
    parts = patterns[0].rstrip("/").split("/")
    fixed = next((count for count, part in enumerate(parts) if WILDCARD.search(part)), len(parts) - 1)
    directory, rest = "/".join(parts[:fixed]), "/".join(parts[fixed:])
    if not rest:
        raise NotAcceptable(f"{patterns[0]}: a glob must name files in a directory")
    return _without_nul(directory) or "/", [_relative(rest)]


def _entry(match: GlobMatch) -> FileEntry:
    return FileEntry.model_validate(
        {
            "path": encodable(match.path),
            "size": match.size,
            "mode": match.mode,
            "modifiedAt": datetime.fromtimestamp(match.modified_ns / 1e9, UTC),
            "kind": "other" if match.kind == "null" else match.kind,
        }
    )


async def _bytes(
    agent: AgentClient, path: str, start: int, length: int, status: FileStatus
) -> AsyncIterator[bytes]:
    async with aclosing(agent.download(path, offset=start, limit=length)) as pieces:
        async for piece in pieces:
            yield piece
            length -= len(piece)
    if length:
        raise RequestFailed(f"{path} was truncated from {status.size} bytes while it was read")


async def _tar(agent: AgentClient, directory: str, paths: list[str]) -> AsyncIterator[bytes]:
    first: OmittedFile | None = None
    count = 0
    try:
        async with aclosing(agent.tar(directory, paths)) as parts:
            async for part in parts:
                if isinstance(part, OmittedFile):
                    count += 1
                    first = first or part
                else:
                    yield part
    finally:
        if first is not None:
            log.warning(
                "files left out of an archive",
                directory=directory,
                count=count,
                path=first.path,
                why=first.why,
            )
