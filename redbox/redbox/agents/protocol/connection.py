"""One agent process and the requests that are under way in it.

Matches answers to requests, grants and counts credit, and declares the agent dead as soon as it ends, breaks
the protocol or does not answer a ping. A peer can send only what was paid for by credit, and only so many
frames before they are read, so it cannot fill memory, and what it may send without being asked is nothing.
Who starts processes, and for whom, is the pool's matter.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from redbox.agents.errors import AgentDied, AgentError, AgentUnavailable, FrameError, RequestFailed
from redbox.agents.program.session import MAX_REQUESTS
from redbox.agents.program.wire import CHUNK, PREFIX, PROTOCOL, WINDOW
from redbox.agents.protocol.answers import Hello, check_header_size, parse_failure, parse_hello, read_integer
from redbox.agents.protocol.frames import AgentFrame, FrameDecoder, FrameKind, HelloScanner, encode_frame

PONG_S = 5.0
GRANT_AT = WINDOW // 4
FRAME_COST = PREFIX.size
MAX_UNREAD = 32_768  # frames; a window has room for 80,000 empty ones, and each costs more than its bytes


class AgentProcess(Protocol):
    """An agent that a transport started: its pipes and its end."""

    preamble: bytes  # written before anything else: the agent's own source where it is not installed

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end; raises OSError when the way to the agent broke."""
        ...

    def write(self, data: bytes) -> None:
        """Have this sent; nothing is once it was closed or the way is broken."""
        ...

    async def drain(self) -> None:
        """Wait until the agent has taken most of what was written."""
        ...

    def close(self) -> None:
        """Close its stdin, whereupon it leaves."""
        ...

    def kill(self) -> None:
        """End it at once where the transport is allowed to, else cut the way to it."""
        ...

    async def wait(self) -> int | None:
        """Wait until it is reaped, and return its exit status where that is known. Any number may wait."""
        ...

    def words(self) -> str:
        """Return the last that it wrote to stderr."""
        ...


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """What a request is for, in words; `safe`: it changes nothing, so that asking twice does no harm."""

    doing: str
    safe: bool


class RequestStream:
    """One request under way, as its caller sees it: iterate for DATA and EVENT frames, then read `result`."""

    def __init__(self, number: int, errand: AgentRequest, connection: AgentConnection) -> None:
        self.number = number
        self.errand = errand
        self.abandoned = False  # nobody reads it: what still comes is thrown away
        self.result: Mapping[str, Any] = {}
        self.ended = False
        self._connection = connection
        self._frames: deque[AgentFrame] = deque()
        self._failure: AgentError | None = None
        self._changed = asyncio.Event()
        self._receivable = WINDOW  # what the agent may still send
        self._sendable = WINDOW  # what may still be sent to the agent
        self._ungranted = 0

    # ---- from the connection
    def deliver(self, frame: AgentFrame) -> None:
        match frame.kind:
            case FrameKind.DATA | FrameKind.EVENT:
                self._receivable -= frame.cost
                if self._receivable < 0:
                    raise FrameError("more than there was credit for")
                if not self.abandoned:
                    self._connection.unread_more()
                    self._frames.append(frame)
            case FrameKind.CREDIT:
                self._sendable += read_integer(frame.header, "bytes", at_least=1)
                if self._sendable > WINDOW:
                    raise FrameError("more credit than was used")
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
        self._consumed(frame.cost)
        return frame

    async def send(self, data: bytes) -> None:
        """Send input, as fast as the agent takes it."""
        for start in range(0, len(data), CHUNK):
            chunk = data[start : start + CHUNK]
            while self._sendable < len(chunk) + FRAME_COST and not self.ended:
                await self._wait()
            if self.ended:
                return  # the answer is there already: the caller will read why
            self._sendable -= len(chunk) + FRAME_COST
            await self._connection.write(FrameKind.DATA, self.number, payload=chunk)

    async def send_all(self, chunks: AsyncIterable[bytes]) -> None:
        async for chunk in chunks:
            await self.send(chunk)
        await self._connection.write(FrameKind.END, self.number)

    async def finish(self) -> Mapping[str, Any]:
        """Wait for the result of a request that sends nothing before it."""
        async for frame in self:
            raise self._connection.die(f"{frame.kind.name} where none is due")
        return self.result

    def forget(self) -> None:
        """Nobody reads what has come."""
        self._connection.unread -= len(self._frames)
        self._frames.clear()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _consumed(self, cost: int) -> None:
        self._ungranted += cost
        if self._ungranted >= GRANT_AT and not self.ended:
            self._receivable += self._ungranted
            self._connection.grant(self.number, self._ungranted)
            self._ungranted = 0


class AgentConnection:
    """The frames to and from one process. `serve` must run as long as it is used."""

    def __init__(self, process: AgentProcess) -> None:
        self.process = process
        self.dead: str | None = None  # why
        self.unread = 0  # frames of all streams
        self._decoder = FrameDecoder()
        self._streams: dict[int, RequestStream] = {}
        self._numbers = itertools.count(1)
        self._doubt = asyncio.Event()
        self._pong = asyncio.Event()
        self._pinged = False

    @property
    def is_busy(self) -> bool:
        return any(not stream.abandoned for stream in self._streams.values())

    async def greet(self) -> Hello:
        """Start the conversation; raises FrameError or OSError where nobody answers as an agent does."""
        nonce = secrets.token_hex(16).encode()
        self.process.write(self.process.preamble + nonce + b"\n")
        await self.process.drain()
        scanner = HelloScanner(nonce)
        while (rest := scanner.feed(await self._read())) is None:
            pass
        while not (frames := list(self._decoder.feed(rest))):
            rest = await self._read()
        hello = parse_hello(frames[0])
        if len(frames) > 1 or hello.protocol != PROTOCOL:
            raise FrameError(
                f"an agent of protocol {hello.protocol}, not {PROTOCOL}: install the one of this red-box"
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
            doctor = tasks.create_task(self._ping_when_in_doubt())
            try:
                while data := await self.process.read():
                    for frame in self._decoder.feed(data):
                        self._dispatch(frame)
                self.die("it ended")
            except FrameError as error:
                self.die(f"it broke the protocol: {error}")
            except OSError as error:
                self.die(f"the way to it broke: {error}")
            finally:
                doctor.cancel()

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

    def unread_more(self) -> None:
        """One more frame waits for its reader."""
        if self.unread >= MAX_UNREAD:
            raise FrameError(f"{MAX_UNREAD} frames that nobody has read")
        self.unread += 1

    def doubt(self) -> None:
        """Have the agent asked for a sign of life, and declared dead if it gives none."""
        self._doubt.set()

    async def _ping_when_in_doubt(self) -> None:
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            if self.dead is not None:
                return
            self._pong.clear()
            self._pinged = True
            self.process.write(encode_frame(FrameKind.PING, 0))
            try:
                async with asyncio.timeout(PONG_S):
                    await self._pong.wait()
            except TimeoutError:
                self.die(f"it did not answer a ping within {PONG_S:.0f} s")

    def die(self, reason: str) -> AgentError:
        """Declare it dead: each request under way fails, and the process is ended if that is possible."""
        if self.dead is None:
            self.dead = reason
            self._fail_all()
            self.process.kill()
        return self.death(AgentRequest("a request", safe=False))

    def leave(self) -> None:
        """Let it end by itself, which it does once kept commands have ended."""
        if self.dead is None:
            self.dead = "it was told to leave"
            self._fail_all()
            self.process.close()

    def _fail_all(self) -> None:
        for stream in self._streams.values():
            stream.fail(self.death(stream.errand))
            stream.abandoned = True

    def death(self, errand: AgentRequest) -> AgentDied:
        detail = f"the agent is gone during {errand.doing}: {self.dead}"
        return AgentDied(detail, doing=errand.doing, retry=errand.safe)

    def grant(self, number: int, credit: int) -> None:
        if self.dead is None:
            self.process.write(encode_frame(FrameKind.CREDIT, number, {"bytes": credit}))

    async def write(
        self, kind: FrameKind, number: int, header: Mapping[str, Any] | None = None, payload: bytes = b""
    ) -> None:
        """Write a frame of a request; of a dead agent the stream has failed, and says so to its reader."""
        if self.dead is not None:
            return
        try:
            self.process.write(encode_frame(kind, number, header, payload))
            await self.process.drain()
        except OSError as error:
            self.die(f"the way to it broke: {error}")

    @asynccontextmanager
    async def request(
        self, operation: str, errand: AgentRequest, arguments: Mapping[str, Any]
    ) -> AsyncIterator[RequestStream]:
        """Begin a request, which is cancelled if it has not ended when the block is left."""
        if self.dead is not None:
            raise AgentUnavailable(f"the agent is gone: {self.dead}", retry_after=1.0)
        if len(self._streams) >= MAX_REQUESTS:
            raise AgentUnavailable(f"the user's agent is busy with {MAX_REQUESTS} requests", retry_after=1.0)
        stream = RequestStream(next(self._numbers), errand, self)
        header = {"op": operation, **arguments}
        try:
            encode_frame(FrameKind.REQUEST, stream.number, header)
        except FrameError as error:
            raise RequestFailed(f"{errand.doing}: {error}") from None
        self._streams[stream.number] = stream
        try:
            await self.write(FrameKind.REQUEST, stream.number, header)
            yield stream
        finally:
            if not stream.ended and self.dead is None:
                stream.abandoned = True
                self.process.write(encode_frame(FrameKind.CANCEL, stream.number))
            stream.forget()
