"""What a user's agent can be asked: each operation with its types, its deadline and its bounds.

Ask the pool for the agent anew for each piece of work: one that is idle is let go. An operation that sends
more than it was asked for, or answers nonsense, is the end of that agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from redbox.agents.errors import AgentDied, AgentTimeout, CommandDetached, FrameError
from redbox.agents.protocol.answers import (
    CommandResult,
    FileAttributes,
    FileStatus,
    GlobResult,
    Hello,
    OmittedFile,
    ReadPrecondition,
    ReadResult,
    RecordedCommand,
    parse_data,
    parse_status,
    parse_tar_part,
    read_attributes,
    read_command_result,
    read_flag,
    read_read_result,
    read_recorded_command,
)
from redbox.agents.protocol.connection import AgentConnection, AgentRequest, RequestStream
from redbox.agents.protocol.frame_collector import collect_data, collect_matches, collect_output, single_chunk
from redbox.agents.protocol.frames import AgentFrame

Part = TypeVar("Part")
OUTPUT_LIMIT = 8 * 1024 * 1024
MAX_PIECE = 8 * 1024 * 1024
FILE_S = 30.0  # for one answer about files; a network file system may take its time
GRACE_S = 5.0  # what an agent has, beyond a command's deadline, to say that it killed it


def read_arguments(
    path: str, offset: int, limit: int, expect: ReadPrecondition | None, *, tail: bool, reuse_s: float
) -> dict[str, Any]:
    expected = expect and {"device": expect.device, "inode": expect.inode, "tail": expect.tail}
    return {
        "path": path,
        "offset": offset,
        "limit": limit,
        "expect": expected,
        "tail": tail,
        "reuse_s": reuse_s,
    }


class AgentClient:
    """A running agent of one user."""

    def __init__(self, connection: AgentConnection, hello: Hello) -> None:
        self.hello = hello
        self._connection = connection

    @property
    def is_alive(self) -> bool:
        return self._connection.dead is None

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        account_env: bool = False,
        cwd: str | None = None,
        inherit: Mapping[str, bytes] | None = None,
        keep: str | None = None,
        replaces: str | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> CommandResult:
        """Run a command to its end.

        `argv[0]` is absolute, or the bare name of a tool that the agent finds in its administrator's list of
        directories. `env` is the whole environment, laid over HOME, USER, LOGNAME, SHELL, PATH and LANG of
        the account with `account_env`; without `env` these are all. `cwd` is / where none is given. Each name
        in `inherit` is replaced in `argv` by the number of a descriptor from which the command reads these
        bytes.

        On the deadline the command is killed and `timed_out` is true. With `keep`, an identity that is used
        once, it is not: `CommandDetached` is raised, and `recall` tells what became of it for a day, to other
        servers too. It is used again in place of a run whose outcome `replaces` names, and of no other.
        """
        blobs = dict(inherit or {})
        arguments = {
            "argv": list(argv),
            "stdin": len(stdin),
            "inherit": [[name, len(data)] for name, data in blobs.items()],
            "env": dict(env or {}),
            "account_env": account_env or env is None,
            "cwd": cwd,
            "deadline": deadline,
            "keep": keep,
            "replaces": replaces,
            "output_limit": output_limit,
        }
        errand = AgentRequest(f"run {argv[0]}", safe=False)
        try:
            async with self._ask("run", errand, arguments, deadline + (0 if keep else GRACE_S)) as stream:
                for data in (stdin, *blobs.values()):
                    await stream.send(data)
                if keep:
                    return read_command_result(await stream.finish())
                return await collect_output(stream, output_limit)
        except AgentTimeout:
            if keep:
                raise CommandDetached(keep) from None
            raise

    async def recall(self, keep: str, *, deadline: float = FILE_S) -> RecordedCommand:
        """Tell what became of a kept command, whichever agent ran it."""
        async with self._ask(
            "recall", AgentRequest(f"recall {keep}", safe=True), {"keep": keep}, deadline
        ) as stream:
            return read_recorded_command(await stream.finish())

    async def stat(self, path: str, *, follow: bool = True, deadline: float = FILE_S) -> FileStatus:
        arguments = {"path": path, "follow": follow}
        async with self._ask("stat", AgentRequest(f"stat {path}", safe=True), arguments, deadline) as stream:
            return parse_status(await stream.finish())

    async def read(
        self,
        path: str,
        *,
        offset: int = 0,
        limit: int = 1024 * 1024,
        expect: ReadPrecondition | None = None,
        tail: bool = False,
        reuse_s: float = 0.0,
        deadline: float = FILE_S,
    ) -> ReadResult:
        """Read up to `limit` bytes from `offset` (negative: that many before the end), with the file's facts.

        With `expect`, only from that same file: otherwise nothing is read and `same` is False, as it is when
        the file has become shorter than `offset`. A file that was opened less than `reuse_s` ago is not
        opened again.
        """
        limit = min(limit, MAX_PIECE)
        arguments = read_arguments(path, offset, limit, expect, tail=tail, reuse_s=reuse_s)
        async with self._ask("read", AgentRequest(f"read {path}", safe=True), arguments, deadline) as stream:
            data = await collect_data(stream, limit)
            return read_read_result(stream.result, data)

    def download(
        self,
        path: str,
        *,
        offset: int = 0,
        limit: int = 2**62,
        expect: ReadPrecondition | None = None,
        silence_s: float = FILE_S,
    ) -> AsyncGenerator[bytes, None]:
        """Read as a stream, as fast as it is consumed (use `contextlib.aclosing`)."""
        arguments = read_arguments(path, offset, limit, expect, tail=False, reuse_s=0.0)
        errand = AgentRequest(f"read {path}", safe=True)
        return self._parts("read", errand, arguments, parse_data, silence_s)

    def tar(
        self, directory: str, paths: Sequence[str], *, dereference: bool = False, silence_s: float = FILE_S
    ) -> AsyncGenerator[bytes | OmittedFile, None]:
        """Make a tar of paths relative to the directory, as a stream (use `contextlib.aclosing`)."""
        arguments = {"directory": directory, "paths": list(paths), "dereference": dereference}
        errand = AgentRequest(f"tar {directory}", safe=True)
        return self._parts("tar", errand, arguments, parse_tar_part, silence_s)

    async def glob(
        self, directory: str, patterns: Sequence[str], *, limit: int = 10_000, deadline: float = FILE_S
    ) -> GlobResult:
        """Find what matches below a directory; `**` goes through directories; dot files are asked for."""
        arguments = {"directory": directory, "patterns": list(patterns), "limit": limit}
        async with self._ask(
            "glob", AgentRequest(f"glob {directory}", safe=True), arguments, deadline
        ) as stream:
            found = await collect_matches(stream, limit)
            return GlobResult(found, read_flag(stream.result, "truncated"))

    async def make_directory(
        self, path: str, *, mode: int = 0o777, parents: bool = True, deadline: float = FILE_S
    ) -> tuple[FileAttributes, bool]:
        """Make a directory unless it is there; return its facts and whether it was made."""
        arguments = {"path": path, "mode": mode, "parents": parents}
        async with self._ask(
            "make_directory", AgentRequest(f"make {path}", safe=True), arguments, deadline
        ) as stream:
            result = await stream.finish()
            return read_attributes(result), read_flag(result, "made")

    async def remove(self, path: str, *, recursive: bool = False, deadline: float = FILE_S) -> None:
        """Remove a file, a symbolic link, an empty directory, or with `recursive` a whole one."""
        arguments = {"path": path, "recursive": recursive}
        async with self._ask(
            "remove", AgentRequest(f"remove {path}", safe=False), arguments, deadline
        ) as stream:
            await stream.finish()

    async def write(
        self, path: str, chunks: AsyncIterable[bytes] | bytes, *, mode: int = 0o644, deadline: float = FILE_S
    ) -> FileAttributes:
        """Write a file anew: whole and on the disk, or not at all. A link of that name is replaced."""
        arguments = {"path": path, "mode": mode}
        async with self._ask(
            "write", AgentRequest(f"write {path}", safe=True), arguments, deadline
        ) as stream:
            await stream.send_all(single_chunk(chunks) if isinstance(chunks, bytes) else chunks)
            return read_attributes(await stream.finish())

    @asynccontextmanager
    async def _ask(
        self, operation: str, errand: AgentRequest, arguments: Mapping[str, Any], deadline: float
    ) -> AsyncIterator[RequestStream]:
        try:
            async with (
                asyncio.timeout(deadline),
                self._connection.request(operation, errand, arguments) as stream,
            ):
                yield stream
        except TimeoutError:
            raise self._silent(f"no answer within {deadline:g} s to {errand.doing}", errand) from None
        except FrameError as error:
            raise self._broke(error, errand) from None

    async def _parts(
        self,
        operation: str,
        errand: AgentRequest,
        arguments: Mapping[str, Any],
        read_part: Callable[[AgentFrame], Part],
        silence_s: float,
    ) -> AsyncGenerator[Part, None]:
        """Yield the parts of an answer of any length, each of which comes within `silence_s`."""
        async with self._connection.request(operation, errand, arguments) as stream:
            while True:
                try:
                    async with asyncio.timeout(silence_s):
                        frame = await anext(stream, None)
                except TimeoutError:
                    raise self._silent(f"silence for {silence_s:g} s during {errand.doing}", errand) from None
                if frame is None:
                    return
                try:
                    part = read_part(frame)
                except FrameError as error:
                    raise self._broke(error, errand) from None
                yield part

    def _silent(self, detail: str, errand: AgentRequest) -> AgentTimeout:
        self._connection.doubt()
        return AgentTimeout(detail, doing=errand.doing, retry=errand.safe)

    def _broke(self, error: FrameError, errand: AgentRequest) -> AgentDied:
        self._connection.die(f"it broke the protocol: {error}")
        return self._connection.death(errand)
