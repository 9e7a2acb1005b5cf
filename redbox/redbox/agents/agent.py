"""The operations of a user's agent, each with its types, its deadline and its bounds.

Get the agent from the pool for each piece of work: the pool ends idle ones. An agent whose answer exceeds the
requested limit, or is malformed, is declared dead.
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
    parse_attributes,
    parse_command_result,
    parse_data,
    parse_made_directory,
    parse_read_result,
    parse_recorded_command,
    parse_status,
    parse_tar_part,
    read_flag,
)
from redbox.agents.protocol.connection import AgentConnection, AgentRequest, RequestStream
from redbox.agents.protocol.frame_collector import collect_data, collect_matches, collect_output, single_chunk
from redbox.agents.protocol.frames import AgentFrame

Part = TypeVar("Part")
OUTPUT_LIMIT = 8 * 1024 * 1024
MAX_READ = 8 * 1024 * 1024
FILE_S = 30.0  # for one answer about files; a network file system may be slow
GRACE_S = 5.0  # beyond a command's deadline, for the agent to kill the command and to answer


class AgentClient:
    """A running agent of one user."""

    def __init__(self, connection: AgentConnection, hello: Hello) -> None:
        self.hello = hello
        self._connection = connection

    @property
    def is_alive(self) -> bool:
        return self._connection.end_reason is None

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

        `argv[0]` is absolute, or the bare name of a tool in the directories of agent.conf's `path`. `env` is
        the whole environment; with `account_env` it is laid over HOME, USER, LOGNAME, SHELL, PATH and LANG of
        the account, and without `env` these are all. `cwd` defaults to /. Each name in `inherit` is replaced
        in `argv` by the number of a descriptor from which the command reads these bytes.

        On the deadline the command is killed and `timed_out` is true. A recorded command is not killed: with
        `keep`, an identity that is used once, `CommandDetached` is raised, and `recall` returns the outcome
        for a day, to other servers too. An identity may be used again only to replace the run whose outcome
        `replaces` identifies.
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
        request = AgentRequest("run", argv[0], arguments, idempotent=False)
        try:
            async with self._open(request, deadline + (0 if keep else GRACE_S)) as stream:
                for data in (stdin, *blobs.values()):
                    await stream.send(data)
                if keep:
                    return parse_command_result(await stream.finish())
                return await collect_output(stream, output_limit)
        except AgentTimeout:
            if keep:
                raise CommandDetached(keep) from None
            raise

    async def recall(self, keep: str, *, deadline: float = FILE_S) -> RecordedCommand:
        """Return the state of a recorded command, whichever agent ran it."""
        request = AgentRequest("recall", keep, {"keep": keep}, idempotent=True)
        return await self._call(request, parse_recorded_command, deadline)

    async def stat(self, path: str, *, follow: bool = True, deadline: float = FILE_S) -> FileStatus:
        request = AgentRequest("stat", path, {"path": path, "follow": follow}, idempotent=True)
        return await self._call(request, parse_status, deadline)

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
        """Read up to `limit` bytes from `offset` (negative: that many before the end), and the attributes.

        With `expect`, only from that same file: otherwise nothing is read and `same` is False, as it is when
        the file has become shorter than `offset`. A file that was opened less than `reuse_s` ago is not
        opened again.
        """
        limit = min(limit, MAX_READ)
        request = read_request(path, offset, limit, expect, tail=tail, reuse_s=reuse_s)
        async with self._open(request, deadline) as stream:
            data = await collect_data(stream, limit)
            return parse_read_result(stream.result, data)

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
        request = read_request(path, offset, limit, expect, tail=False, reuse_s=0.0)
        return self._parts(request, parse_data, silence_s)

    def tar(
        self, directory: str, paths: Sequence[str], *, dereference: bool = False, silence_s: float = FILE_S
    ) -> AsyncGenerator[bytes | OmittedFile, None]:
        """Make a tar of paths relative to the directory, as a stream (use `contextlib.aclosing`)."""
        arguments = {"directory": directory, "paths": list(paths), "dereference": dereference}
        request = AgentRequest("tar", directory, arguments, idempotent=True)
        return self._parts(request, parse_tar_part, silence_s)

    async def glob(
        self, directory: str, patterns: Sequence[str], *, limit: int = 10_000, deadline: float = FILE_S
    ) -> GlobResult:
        """Match patterns below a directory; `**` descends; dot files match only patterns with a dot."""
        arguments = {"directory": directory, "patterns": list(patterns), "limit": limit}
        request = AgentRequest("glob", directory, arguments, idempotent=True)
        async with self._open(request, deadline) as stream:
            found = await collect_matches(stream, limit)
            return GlobResult(found, read_flag(stream.result, "truncated"))

    async def make_directory(
        self, path: str, *, mode: int = 0o777, parents: bool = True, deadline: float = FILE_S
    ) -> tuple[FileAttributes, bool]:
        """Make a directory unless it exists; return its attributes and whether it was made."""
        arguments = {"path": path, "mode": mode, "parents": parents}
        request = AgentRequest("make_directory", path, arguments, idempotent=True)
        return await self._call(request, parse_made_directory, deadline)

    async def remove(self, path: str, *, recursive: bool = False, deadline: float = FILE_S) -> None:
        """Remove a file, a symbolic link, an empty directory, or with `recursive` a whole one."""
        arguments = {"path": path, "recursive": recursive}
        request = AgentRequest("remove", path, arguments, idempotent=False)
        await self._call(request, lambda _: None, deadline)

    async def write(
        self, path: str, chunks: AsyncIterable[bytes] | bytes, *, mode: int = 0o644, deadline: float = FILE_S
    ) -> FileAttributes:
        """Replace a file or symbolic link atomically, with fsync."""
        request = AgentRequest("write", path, {"path": path, "mode": mode}, idempotent=True)
        async with self._open(request, deadline) as stream:
            await stream.send_all(single_chunk(chunks) if isinstance(chunks, bytes) else chunks)
            return parse_attributes(await stream.finish())

    async def _call(
        self, request: AgentRequest, parse: Callable[[Mapping[str, Any]], Part], deadline: float
    ) -> Part:
        """Return the parsed result of a request without input, whose answer is its result alone."""
        async with self._open(request, deadline) as stream:
            return parse(await stream.finish())

    @asynccontextmanager
    async def _open(self, request: AgentRequest, deadline: float) -> AsyncIterator[RequestStream]:
        try:
            async with asyncio.timeout(deadline), self._connection.open(request) as stream:
                yield stream
        except TimeoutError:
            raise self._timed_out(request, f"no answer within {deadline:g} s to {request}") from None
        except FrameError as error:
            raise self._broke_protocol(request, error) from None

    async def _parts(
        self, request: AgentRequest, parse_part: Callable[[AgentFrame], Part], silence_s: float
    ) -> AsyncGenerator[Part, None]:
        """Yield the parts of an answer of any length, with at most `silence_s` between two of them."""
        async with self._connection.open(request) as stream:
            while True:
                try:
                    async with asyncio.timeout(silence_s):
                        frame = await anext(stream, None)
                except TimeoutError:
                    raise self._timed_out(request, f"silence for {silence_s:g} s during {request}") from None
                if frame is None:
                    return
                try:
                    part = parse_part(frame)
                except FrameError as error:
                    raise self._broke_protocol(request, error) from None
                yield part

    def _timed_out(self, request: AgentRequest, detail: str) -> AgentTimeout:
        self._connection.request_ping()
        return AgentTimeout(detail, retry=request.idempotent)

    def _broke_protocol(self, request: AgentRequest, error: FrameError) -> AgentDied:
        self._connection.die(f"it broke the protocol: {error}")
        return self._connection.died_during(request)


def read_request(
    path: str, offset: int, limit: int, expect: ReadPrecondition | None, *, tail: bool, reuse_s: float
) -> AgentRequest:
    expected = expect and {"device": expect.device, "inode": expect.inode, "tail": expect.tail}
    arguments = {
        "path": path,
        "offset": offset,
        "limit": limit,
        "expect": expected,
        "tail": tail,
        "reuse_s": reuse_s,
    }
    return AgentRequest("read", path, arguments, idempotent=True)
