"""Listing, downloading and staging files of a job, by the agent of its user.

A path is taken relative to the job's working directory. Nothing is forbidden here: symbolic links and `..`
lead where they lead, and the kernel decides what the user may open there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from redbox.agents.agent import Agent
from redbox.agents.errors import RequestFailed, SystemFault
from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import FileStatus, LeftOut, Match
from redbox.core.domain import JobRef
from redbox.jobs.errors import Forbidden, JobNotFound, NotAcceptable
from redbox.jobs.record.record import JobRecord
from redbox.jobs.service import JobService
from redbox.observability.sanitize import printable
from redbox_api.files import FileEntry, FileList

MOST_FOUND = 10_000
MOST_PATHS = 4_000
UPLOAD_S = 3600.0
MAGIC = re.compile(r"[*?[]")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """From `start` up to and without `end`; the whole file instead where it is no longer `of` this tag."""

    start: int = 0
    end: int | None = None
    of: str | None = None


@dataclass(frozen=True, slots=True)
class Download:
    """A file as it is now, told from what it was and will be by its tag, and the part that is sent."""

    size: int
    tag: str
    start: int
    end: int
    pieces: AsyncIterator[bytes]


@dataclass
class FilesOfJobs:
    """What lies in jobs' working directories."""

    jobs: JobService
    pool: AgentPool

    async def find(self, asked: JobRef, patterns: list[str]) -> FileList:
        """What the globs find, by name."""
        async with self._agent(asked) as (agent, directory):
            matches = await agent.glob(directory, [_relative(one) for one in patterns], limit=MOST_FOUND)
        items = sorted((_entry(match) for match in matches.found), key=lambda entry: entry.path)
        return FileList(items=items, truncated=matches.truncated)

    async def download(self, asked: JobRef, path: str, part: Part) -> Download:
        """One regular file, as it is now; bytes that are appended meanwhile are not sent."""
        async with self._agent(asked) as (agent, directory):
            whole = _within(directory, path)
            status = await agent.stat(whole)
            if status.kind not in {"file", "null"}:
                raise NotAcceptable(f"{path} is a {status.kind}: only files are downloaded, or use archive")
            tag = _tag_of(status)
            start, end = (part.start, part.end) if part.of in {None, tag} else (0, None)
            end = status.size if end is None else min(end, status.size)
            pieces = _bytes(agent, whole, start, max(0, end - start), status)
            return Download(status.size, tag, start, end, pieces)

    async def archive(self, asked: JobRef, patterns: list[str]) -> AsyncIterator[bytes]:
        """A tar of what the globs find, with names and modes; symbolic links stay links."""
        async with self._agent(asked) as (agent, working_directory):
            directory, globs = _begin(working_directory, patterns)
            matches = await agent.glob(directory, globs, limit=MOST_PATHS)
            if matches.truncated:
                raise NotAcceptable(f"the globs find more than {MOST_PATHS} paths; name a directory instead")
            if not matches.found:
                raise JobNotFound(f"the globs find nothing in {directory}")
            return _tar(agent, directory, [match.path for match in matches.found])

    async def upload(self, asked: JobRef, path: str, mode: int, pieces: AsyncIterator[bytes]) -> int:
        """Whole under its name, or not at all."""
        async with self._agent(asked) as (agent, directory):
            whole = _within(directory, path)
            if posixpath.dirname(path):
                await agent.make_directory(posixpath.dirname(whole))
            facts = await agent.write(whole, pieces, mode=mode, deadline=UPLOAD_S)
            return facts.size

    @asynccontextmanager
    async def _agent(self, asked: JobRef) -> AsyncIterator[tuple[Agent, str]]:
        record = await self.jobs.locate(asked.caller, asked.key, asked.attempt)
        directory = _directory_of(record)
        agent = await self.pool.agent(record.user, "files")
        try:
            yield agent, directory
        except SystemFault as fault:
            if fault.is_missing:
                raise JobNotFound(f"{fault.path}: {fault.words}") from fault
            raise Forbidden(f"{fault.path}: {fault.words}, as user {record.user.name}") from fault
        except RequestFailed as error:
            raise NotAcceptable(str(error)) from error


def _directory_of(record: JobRecord) -> str:
    directory = record.status.working_directory or record.working_directory
    if not directory:
        raise JobNotFound("Slurm has not said yet where the job's working directory is")
    return directory


def _tag_of(status: FileStatus) -> str:
    return f'"{status.inode:x}-{status.size:x}-{status.modified_ns:x}"'


def _within(directory: str, path: str) -> str:
    return posixpath.join(directory, _without_nul(path))


def _without_nul(path: str) -> str:
    if "\0" in path:
        raise NotAcceptable(f"{path!r}: no file's name holds a NUL")
    return path


def _relative(pattern: str) -> str:
    _without_nul(pattern)
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise NotAcceptable(f"{pattern}: a glob begins in the job's working directory and stays there")
    return pattern


def _begin(working_directory: str, patterns: list[str]) -> tuple[str, list[str]]:
    """The folder of a tar, and globs within it: names in a tar are relative, whatever was asked for."""
    if len(patterns) != 1 or not patterns[0].startswith("/"):
        return working_directory, [_relative(one) for one in patterns]
    parts = patterns[0].rstrip("/").split("/")
    fixed = next((count for count, part in enumerate(parts) if MAGIC.search(part)), len(parts) - 1)
    folder, rest = "/".join(parts[:fixed]), "/".join(parts[fixed:])
    if not rest:
        raise NotAcceptable(f"{patterns[0]}: a glob names something in a folder")
    return _without_nul(folder) or "/", [_relative(rest)]


def _entry(match: Match) -> FileEntry:
    kind = match.kind if match.kind in {"file", "directory", "symlink"} else "other"
    return FileEntry.model_validate(
        {
            "path": printable(match.path),
            "size": match.size,
            "mode": match.mode,
            "modifiedAt": datetime.fromtimestamp(match.modified_ns / 1e9, UTC),
            "kind": kind,
        }
    )


async def _bytes(
    agent: Agent, path: str, start: int, length: int, status: FileStatus
) -> AsyncIterator[bytes]:
    from_agent = agent.download(path, offset=start, limit=length)
    async with aclosing(from_agent) as pieces:
        async for piece in pieces:
            yield piece
            length -= len(piece)
    if length:
        raise RequestFailed(f"{path} was cut from its {status.size} bytes while it was read")


async def _tar(agent: Agent, directory: str, paths: list[str]) -> AsyncIterator[bytes]:
    first: LeftOut | None = None
    count = 0
    try:
        async with aclosing(agent.tar(directory, paths)) as parts:
            async for part in parts:
                if isinstance(part, LeftOut):
                    count += 1
                    first = first or part
                else:
                    yield part
    finally:
        if first is not None:
            log.warning("left out of a tar", directory=directory, count=count, path=first.path, why=first.why)
