"""The operations of a user's agent, each with its types, its deadline and its bounds.

Get the agent from the pool for each piece of work: the pool ends idle ones. An agent whose answer exceeds the
requested limit, or is malformed, is declared dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from typing import Any, TypeVar

from redbox.agents.errors import AgentDied, AgentTimeout, CommandDetached, FrameError
from redbox.agents.program.wire import CHUNK
from redbox.agents.protocol import answers
from redbox.agents.protocol.connection import AgentConnection, AgentRequest, RequestStream
from redbox.agents.protocol.frames import AgentFrame, FrameKind

Part = TypeVar("Part")
OUTPUT_LIMIT = 8 * 1024 * 1024
MAX_STDERR = 1024 * 1024  # the rest is dropped
MAX_READ = 8 * 1024 * 1024
FILE_S = 30.0  # for one answer about files; a network file system may be slow
GRACE_S = 5.0  # beyond a command's deadline, for the agent to kill the command and to answer


class AgentClient:
    """A running agent of one user."""

    def __init__(self, connection: AgentConnection, hello: answers.Hello) -> None:
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
        cwd: str | None = None,
        inherit: Mapping[str, bytes] | None = None,
        keep: str | None = None,
        replaces: str | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> answers.CommandResult:
        """Run a command to its end.

        `argv[0]` is absolute, or the bare name of a tool in the directories of agent.conf's `path`. `env` is
        the whole environment, by default HOME, USER, LOGNAME, SHELL, PATH and LANG of the account. `cwd`
        defaults to /. Each name in `inherit` is replaced in `argv` by the number of a descriptor from which
        the command reads these bytes.

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
            "account_env": env is None,
            "cwd": cwd,
            "deadline": deadline,
            "keep": keep,
            "replaces": replaces,
            "output_limit": output_limit,
        }
        data = b"".join((stdin, *blobs.values()))
        first, rest = (data, b"") if len(data) <= CHUNK else (b"", data)
        request = AgentRequest("run", argv[0], arguments, idempotent=False, data=first)
        try:
            async with self._open(request, deadline + (0 if keep else GRACE_S)) as stream:
                await stream.send(rest)
                if keep:
                    return answers.parse_command_result(await stream.finish())
                return await collect_output(stream, output_limit)
        except AgentTimeout:
            if keep:
                raise CommandDetached(keep) from None
            raise

    async def recall(self, keep: str) -> answers.RecordedCommand:
        """Return the state of a recorded command, whichever agent ran it."""
        return await self._call(AgentRequest("recall", keep, {"keep": keep}), answers.parse_recorded_command)

    async def end_agent(self, earlier: answers.Hello) -> None:
        """Have an earlier agent of the user end, stopped or traced ones too. Returns before it does."""
        process = {"boot": earlier.boot, "pid": earlier.pid, "start": earlier.start}
        request = AgentRequest("end_agent", str(earlier.pid), {"process": process})
        await self._call(request, lambda _: None)

    async def stat(self, path: str, *, deadline: float = FILE_S) -> answers.FileStatus:
        request = AgentRequest("stat", path, {"path": path})
        return await self._call(request, answers.parse_status, deadline)

    async def read(
        self,
        path: str,
        *,
        offset: int = 0,
        limit: int = 1024 * 1024,
        expect: answers.ReadPrecondition | None = None,
        tail: bool = False,
        reuse_s: float = 0.0,
        deadline: float = FILE_S,
    ) -> answers.ReadResult:
        """Read up to `limit` bytes from `offset` (negative: that many before the end), and the attributes.

        With `expect`, only from that same file: otherwise nothing is read and `same` is False, as it is when
        the file has become shorter than `offset`. A file that was opened less than `reuse_s` ago is not
        opened again.
        """
        limit = min(limit, MAX_READ)
        request = read_request(path, offset, limit, expect, tail=tail, reuse_s=reuse_s)
        async with self._open(request, deadline) as stream:
            data = await collect_data(stream, limit)
            return answers.parse_read_result(stream.result, data)

    def download(self, path: str, *, offset: int = 0, limit: int = 2**62) -> AsyncGenerator[bytes, None]:
        """Read as a stream, as fast as it is consumed (use `contextlib.aclosing`)."""
        return self._parts(read_request(path, offset, limit), answers.parse_data)

    def tar(self, directory: str, paths: Sequence[str]) -> AsyncGenerator[bytes | answers.OmittedFile, None]:
        """Make a tar of paths relative to the directory, as a stream (use `contextlib.aclosing`)."""
        arguments = {"directory": directory, "paths": list(paths)}
        return self._parts(AgentRequest("tar", directory, arguments), answers.parse_tar_part)

    async def glob(
        self, directory: str, patterns: Sequence[str], *, limit: int = 10_000
    ) -> answers.GlobResult:
        """Match patterns below a directory; `**` descends; dot files match only patterns with a dot."""
        arguments = {"directory": directory, "patterns": list(patterns), "limit": limit}
        async with self._open(AgentRequest("glob", directory, arguments)) as stream:
            found = await collect_matches(stream, limit)
            return answers.GlobResult(found, answers.read_flag(stream.result, "truncated"))

    async def make_directory(self, path: str, *, mode: int = 0o777) -> None:
        """Make a directory, and those above it, unless it exists."""
        request = AgentRequest("make_directory", path, {"path": path, "mode": mode})
        await self._call(request, lambda _: None)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a symbolic link, an empty directory, or with `recursive` a whole one."""
        request = AgentRequest("remove", path, {"path": path, "recursive": recursive}, idempotent=False)
        await self._call(request, lambda _: None)

    async def make_own_directory(self, path: str, *, mode: int) -> answers.FileAttributes:
        """Make a directory of exactly this mode, and those above it, unless it exists.

        A symbolic link in its place is an error.
        """
        request = AgentRequest("make_own_directory", path, {"path": path, "mode": mode})
        return await self._call(request, answers.parse_attributes)

    async def remove_own_directory(self, path: str, *, inode: int, deadline: float) -> None:
        """Remove the directory of this inode with all files in it; ESTALE for anything else in its place."""
        request = AgentRequest("remove_own_directory", path, {"path": path, "inode": inode}, idempotent=False)
        await self._call(request, lambda _: None, deadline)

    async def write(
        self, path: str, chunks: AsyncIterable[bytes] | bytes, *, mode: int = 0o644, deadline: float = FILE_S
    ) -> answers.FileAttributes:
        """Replace a file or symbolic link atomically, with fsync."""
        request = AgentRequest("write", path, {"path": path, "mode": mode})
        async with self._open(request, deadline) as stream:
            await stream.send_all(chunks)
            return answers.parse_attributes(await stream.finish())

    async def unpack(self, directory: str, archive: bytes, *, wanted: str) -> bool:
        """Write the files of a tar into a directory, and return whether `wanted` is a file of the user's own.

        The directory becomes the user's own, with mode 0700; it is made, with those above it, unless it
        exists. Each file replaces an earlier one as a whole, without fsync.
        """
        request = AgentRequest("unpack", directory, {"directory": directory, "wanted": wanted})
        async with self._open(request) as stream:
            await stream.send_all(archive)
            return answers.read_flag(await stream.finish(), "found")

    @asynccontextmanager
    async def open_step(
        self, argv: Sequence[str], program: bytes, *, job: str, name: str, env: Mapping[str, str]
    ) -> AsyncIterator[StepConnection]:
        """Start a Python program in a step of the job, and exchange bytes with it; it ends with the block.

        The step's command ends with the bootstrap of such programs, which reads what the agent sends first.
        """
        parameters = {"argv": list(argv), "job": job, "name": name, "env": dict(env)}
        request = AgentRequest("run_program", name, parameters, idempotent=False, data=program)
        async with self._begun(request) as stream:
            yield StepConnection(stream, self._broke_protocol)

    async def _call(
        self, request: AgentRequest, parse: Callable[[Mapping[str, Any]], Part], deadline: float = FILE_S
    ) -> Part:
        """Return the parsed result of a request without input, whose answer is its result alone."""
        async with self._open(request, deadline) as stream:
            return parse(await stream.finish())

    @asynccontextmanager
    async def _open(self, request: AgentRequest, deadline: float = FILE_S) -> AsyncIterator[RequestStream]:
        try:
            async with asyncio.timeout(deadline), self._connection.open(request) as stream:
                yield stream
        except TimeoutError:
            raise self._timed_out(request, f"no answer within {deadline:g} s to {request}") from None
        except FrameError as error:
            raise self._broke_protocol(request, error) from None

    @asynccontextmanager
    async def _begun(self, request: AgentRequest) -> AsyncIterator[RequestStream]:
        """A request whose answer may last: an agent that its user has stopped does not even read it."""
        async with AsyncExitStack() as opened:
            try:
                async with asyncio.timeout(FILE_S):
                    stream = await opened.enter_async_context(self._connection.open(request))
            except TimeoutError:
                raise self._timed_out(request, f"{request} was not read within {FILE_S:g} s") from None
            yield stream

    async def _parts(
        self, request: AgentRequest, parse_part: Callable[[AgentFrame], Part]
    ) -> AsyncGenerator[Part, None]:
        """Yield the parts of an answer of any length, with at most `FILE_S` between two of them."""
        async with self._begun(request) as stream:
            while True:
                try:
                    async with asyncio.timeout(FILE_S):
                        frame = await anext(stream, None)
                    if frame is None:
                        return
                    part = parse_part(frame)
                except TimeoutError:
                    raise self._timed_out(request, f"silence for {FILE_S:g} s during {request}") from None
                except FrameError as error:
                    raise self._broke_protocol(request, error) from None
                yield part

    def _timed_out(self, request: AgentRequest, detail: str) -> AgentTimeout:
        self._connection.request_ping()
        return AgentTimeout(detail, retry=request.idempotent)

    def _broke_protocol(self, request: AgentRequest, error: FrameError) -> AgentDied:
        self._connection.die(f"it broke the protocol: {error}")
        return self._connection.died_during(request)


class StepConnection:
    """The input and the output of a step's program."""

    def __init__(
        self, stream: RequestStream, broke_protocol: Callable[[AgentRequest, FrameError], AgentDied]
    ) -> None:
        self._stream = stream
        self._broke_protocol = broke_protocol

    async def send(self, data: bytes) -> None:
        """Send input as the agent takes it; callers take turns."""
        await self._stream.send(data)

    async def receive(self) -> bytes:
        """Return the next bytes, b"" at the end, after which `message` is there."""
        frame = await anext(self._stream, None)
        try:
            return answers.parse_data(frame) if frame is not None else b""
        except FrameError as error:
            raise self._broke_protocol(self._stream.request, error) from None

    def message(self) -> str:
        """What srun wrote to stderr, when it has ended."""
        if not self._stream.ended:
            return ""
        try:
            return answers.read_text(self._stream.result, "message")
        except FrameError as error:
            raise self._broke_protocol(self._stream.request, error) from None


def read_request(
    path: str,
    offset: int,
    limit: int,
    expect: answers.ReadPrecondition | None = None,
    *,
    tail: bool = False,
    reuse_s: float = 0.0,
) -> AgentRequest:
    arguments = {
        "path": path,
        "offset": offset,
        "limit": limit,
        "expect": asdict(expect) if expect else None,
        "tail": tail,
        "reuse_s": reuse_s,
    }
    return AgentRequest("read", path, arguments)


async def collect_output(stream: RequestStream, limit: int) -> answers.CommandResult:
    stdout, stderr = outputs = bytearray(), bytearray()
    async for frame in stream:
        number, data = answers.read_integer(frame.header, "fd", at_least=1), answers.parse_data(frame)
        if number > len(outputs) or len(outputs[number - 1]) + len(data) > limit:
            raise FrameError("more output than the limit")
        outputs[number - 1].extend(data if number == 1 else data[: MAX_STDERR - len(stderr)])
    truncated = answers.read_flag(stream.result, "truncated")
    return answers.parse_exit(stream.result, bytes(stdout), bytes(stderr), truncated=truncated)


async def collect_data(stream: RequestStream, limit: int) -> bytes:
    chunks: list[bytes] = []
    length = 0
    async for frame in stream:
        chunks.append(answers.parse_data(frame))
        length += len(chunks[-1])
        if length > limit:
            raise FrameError("more bytes than the limit")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def collect_matches(stream: RequestStream, limit: int) -> tuple[answers.GlobMatch, ...]:
    matches: list[answers.GlobMatch] = []
    async for frame in stream:
        if frame.kind is not FrameKind.EVENT or len(matches) >= limit:
            raise FrameError("more matches than the limit")
        matches.append(answers.parse_match(frame.header))
    return tuple(matches)
