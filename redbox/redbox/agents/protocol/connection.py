"""One agent process and the requests under way in it.

The connection matches answers to requests, grants and counts credit, and declares the agent dead when it
ends, breaks the protocol or does not answer a ping. A peer sends no more bytes than its credit, and no more
than `MAX_UNREAD` frames ahead of their readers, so that it cannot fill memory. `startup` starts processes.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from redbox.agents.errors import AgentDied, AgentError, AgentUnavailable, FrameError, RequestFailed
from redbox.agents.program.session import MAX_REQUESTS, SHUTDOWN_S
from redbox.agents.program.wire import CHUNK, PREFIX, PROTOCOL, WINDOW
from redbox.agents.protocol.answers import Hello, check_header_size, parse_failure, parse_hello, read_integer
from redbox.agents.protocol.frames import AgentFrame, FrameDecoder, FrameKind, HelloScanner, encode_frame
from redbox_shared.credit import ReceiveCredit

PONG_S = 5.0
SILENCE_S = 15.0  # with a request under way, until the agent is pinged
END_S = SHUTDOWN_S + 10  # for an agent to end by itself
FRAME_COST = PREFIX.size
MAX_UNREAD = 32_768  # frames; a window has room for 80,000 empty ones, and each costs more than its bytes


class AgentProcess(Protocol):
    """An agent that a transport started: its pipes and its end."""

    preamble: bytes  # written before anything else: the agent's own source where it is not installed

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end; raises OSError when the connection to the agent broke."""

    def write(self, data: bytes) -> None:
        """Send without waiting; does nothing once it was closed or the connection broke."""

    async def drain(self) -> None:
        """Wait until the agent has taken most of what was written."""

    def close(self) -> None:
        """Close its stdin, upon which the agent exits once its recorded commands have ended."""

    def abandon(self) -> None:
        """Close its stdin as `close` does, and read nothing more of it."""

    def kill(self) -> None:
        """Kill it where the transport has the right to, else close the connection to it."""

    async def wait(self) -> int | None:
        """Wait until it is reaped; return its exit status if that is available. Several tasks may wait."""

    def stderr_text(self) -> str:
        """Return the beginning of its stderr."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One operation with its arguments; an idempotent one may be repeated without harm.

    `data` is the beginning of its input, for agents that take it with the request.
    """

    operation: str
    target: str
    arguments: Mapping[str, Any]
    idempotent: bool = True
    data: bytes = field(default=b"", repr=False)  # scripts and environments have secrets

    def __str__(self) -> str:
        return f"{self.operation} {self.target}"


class RequestStream:
    """One request under way, as its caller uses it: iterate DATA and EVENT frames, then read `result`."""

    def __init__(self, number: int, request: AgentRequest, connection: AgentConnection) -> None:
        self.number = number
        self.request = request
        self.abandoned = False  # without a reader: frames that still arrive are dropped
        self.result: Mapping[str, Any] = {}
        self.ended = False
        self._connection = connection
        self._frames: deque[AgentFrame] = deque()
        self._failure: AgentError | None = None
        self._changed = asyncio.Event()
        self._received = ReceiveCredit(WINDOW)
        self._send_credit = WINDOW  # bytes that may still be sent to the agent

    # ---- from the connection
    def deliver(self, frame: AgentFrame) -> None:
        match frame.kind:
            case FrameKind.DATA | FrameKind.EVENT:
                if not self._received.receive(frame.cost):
                    raise FrameError("more bytes than its credit")
                if not self.abandoned:
                    self._connection.count_unread_frame()
                    self._frames.append(frame)
            case FrameKind.CREDIT:
                self._send_credit += read_integer(frame.header, "bytes", at_least=1)
                if self._send_credit > WINDOW:
                    raise FrameError("more credit than its window")
            case FrameKind.DONE:
                self._finish(frame.header, None)
            case FrameKind.FAILED:
                self._finish({}, parse_failure(frame.header))
            case _:
                raise FrameError(f"{frame.kind.name} for a request")
        self._changed.set()

    def fail(self, failure: AgentError) -> None:
        if not self.ended:
            self._finish({}, failure)
            self._changed.set()

    def _finish(self, result: Mapping[str, Any], failure: AgentError | None) -> None:
        self.ended, self.result, self._failure = True, result, failure

    # ---- from the caller
    def __aiter__(self) -> AsyncIterator[AgentFrame]:
        return self

    async def __anext__(self) -> AgentFrame:
        while not self._frames:
            if self._failure:
                raise self._failure
            if self.ended:
                raise StopAsyncIteration
            await self._wait()
        frame = self._frames.popleft()
        self._connection.unread -= 1
        granted = self._received.consume(frame.cost)
        if granted and not self.ended:
            self._connection.grant(self.number, granted)
        return frame

    async def send(self, data: bytes) -> None:
        """Send input as the agent grants credit."""
        for start in range(0, len(data), CHUNK):
            chunk = data[start : start + CHUNK]
            while self._send_credit < len(chunk) + FRAME_COST and not self.ended:
                await self._wait()
            if self.ended:
                return  # the answer, which the caller reads next, holds the reason
            self._send_credit -= len(chunk) + FRAME_COST
            await self._connection.write(encode_frame(FrameKind.DATA, self.number, payload=chunk))

    async def send_all(self, chunks: AsyncIterable[bytes] | bytes) -> None:
        if isinstance(chunks, bytes):
            await self.send(chunks)
        else:
            async for chunk in chunks:
                await self.send(chunk)
        await self._connection.write(encode_frame(FrameKind.END, self.number))

    async def finish(self) -> Mapping[str, Any]:
        """Wait for the result of a request whose answer is its result alone."""
        async for frame in self:
            raise self._connection.die(f"unexpected {frame.kind.name}")
        return self.result

    def discard_unread(self) -> None:
        self._connection.unread -= len(self._frames)
        self._frames.clear()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class AgentConnection:
    """The frames to and from one process. `serve` must run as long as it is used."""

    def __init__(self, process: AgentProcess) -> None:
        self.process = process
        self.printed = ""  # the last line in place of a hello, once the start has failed
        self.end_reason: str | None = None  # of a dead agent
        self.is_abandoned = False  # red-box has broken the connection: it may still run
        self.unread = 0  # frames of all streams
        self._decoder = FrameDecoder()
        self._streams: dict[int, RequestStream] = {}
        self._numbers = itertools.count(1)
        self._ping_wanted = asyncio.Event()
        self._pong = asyncio.Event()
        self._is_silent = False
        self._pinged = False

    @property
    def is_busy(self) -> bool:
        return any(not stream.abandoned for stream in self._streams.values())

    async def greet(self) -> Hello:
        """Exchange hellos; raises FrameError or OSError where the peer does not answer as an agent does."""
        nonce = secrets.token_hex(16).encode()
        self.process.write(self.process.preamble + nonce + b"\n")
        await self.process.drain()
        scanner = HelloScanner(nonce)
        try:
            while (rest := scanner.feed(await self._read())) is None:
                pass
        finally:
            self.printed = scanner.printed
        while not (frames := list(self._decoder.feed(rest))):
            rest = await self._read()
        hello = parse_hello(frames[0])
        if len(frames) > 1 or hello.protocol != PROTOCOL:
            raise FrameError(
                f"the agent has protocol {hello.protocol}, not {PROTOCOL}: run `redbox init` on its host"
            )
        return hello

    async def _read(self) -> bytes:
        data = await self.process.read()
        if not data:
            raise FrameError("it ended without a hello")
        return data

    async def serve(self) -> None:
        """Read until the agent is dead. Never raises for what the agent does."""
        async with asyncio.TaskGroup() as tasks:
            pinger = tasks.create_task(self._ping_when_wanted())
            try:
                while data := await self.process.read():
                    self._is_silent = False
                    for frame in self._decoder.feed(data):
                        self._dispatch(frame)
                self._end("it ended")
            except FrameError as error:
                self.die(f"it broke the protocol: {error}")
            except OSError as error:
                self.die(f"the connection to it broke: {error}")
            finally:
                pinger.cancel()

    def _dispatch(self, frame: AgentFrame) -> None:
        if frame.kind is FrameKind.PONG and self._pinged:
            self._pinged = False
            self._pong.set()
            return
        stream = self._streams.get(frame.request)
        if stream is None:
            raise FrameError(f"{frame.kind.name} for a request that is not under way")
        check_header_size(frame)
        stream.deliver(frame)
        if stream.ended:
            del self._streams[frame.request]

    def count_unread_frame(self) -> None:
        if self.unread >= MAX_UNREAD:
            raise FrameError(f"more than {MAX_UNREAD} unread frames")
        self.unread += 1

    def request_ping(self) -> None:
        """Have the agent pinged, and declared dead if it does not answer."""
        self._ping_wanted.set()

    async def _ping_when_wanted(self) -> None:
        while True:
            self._is_silent = True
            with suppress(TimeoutError):
                async with asyncio.timeout(SILENCE_S):
                    await self._ping_wanted.wait()
            if not self._ping_wanted.is_set() and not (self._is_silent and self._streams):
                continue
            self._ping_wanted.clear()
            if self.end_reason is not None:
                return
            self._pong.clear()
            self._pinged = True
            self.process.write(encode_frame(FrameKind.PING, 0))
            try:
                async with asyncio.timeout(PONG_S):
                    await self._pong.wait()
            except TimeoutError:
                self.die(f"it did not answer a ping within {PONG_S:.0f} s")

    def die(self, reason: str) -> AgentDied:
        """Declare the agent dead: fail all requests. Its recorded commands still run to their end."""
        if self.end_reason is None:
            self._end(reason)
            self.is_abandoned = True
            self.process.abandon()
        return AgentDied(f"red-box's agent is gone: {self.end_reason}", retry=False)

    def close(self) -> None:
        """Let the agent exit by itself, which it does once its recorded commands have ended."""
        if self.end_reason is None:
            self._end("red-box has closed the connection")

    def _end(self, reason: str) -> None:
        if self.end_reason is not None:
            return
        self.end_reason = reason
        self.process.close()
        asyncio.get_running_loop().call_later(END_S, self._kill)
        for stream in self._streams.values():
            stream.fail(self.died_during(stream.request))
            stream.abandoned = True

    def _kill(self) -> None:
        self.is_abandoned = True
        self.process.kill()

    def died_during(self, request: AgentRequest) -> AgentDied:
        detail = f"red-box's agent is gone during {request}: {self.end_reason}"
        return AgentDied(detail, retry=request.idempotent)

    def grant(self, number: int, credit: int) -> None:
        if self.end_reason is None:
            self.process.write(encode_frame(FrameKind.CREDIT, number, {"bytes": credit}))

    async def write(self, frame: bytes) -> None:
        """Write a frame of a request; does nothing for a dead agent, whose streams have failed."""
        if self.end_reason is not None:
            return
        try:
            self.process.write(frame)
            await self.process.drain()
        except OSError as error:
            self.die(f"the connection to it broke: {error}")

    @asynccontextmanager
    async def open(self, request: AgentRequest) -> AsyncIterator[RequestStream]:
        """Send a request, which is cancelled if it has not ended at the end of the block."""
        if self.end_reason is not None:
            raise AgentUnavailable(f"red-box's agent is gone: {self.end_reason}", retry_after=1.0)
        if len(self._streams) >= MAX_REQUESTS:
            raise AgentUnavailable(f"the user's agent is busy with {MAX_REQUESTS} requests", retry_after=1.0)
        stream = RequestStream(next(self._numbers), request, self)
        header = {"op": request.operation, **request.arguments}
        try:
            frame = encode_frame(FrameKind.REQUEST, stream.number, header, request.data)
        except FrameError as error:
            raise RequestFailed(f"{request}: {error}") from None
        self._streams[stream.number] = stream
        try:
            await self.write(frame)
            yield stream
        finally:
            if not stream.ended and self.end_reason is None:
                stream.abandoned = True
                self.process.write(encode_frame(FrameKind.CANCEL, stream.number))
            stream.discard_unread()
