"""One relay and its streams, on the server's side, where what a relay sends is a stranger's.

Frames of all streams share the step's input and output. Each stream has credit of its own in each
direction, so that neither a reader that stalls nor a command that does not read holds back another one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from redbox.agents.errors import AgentError
from redbox.agents.program.wire import CHUNK
from redbox.relay.program import frames
from redbox.relay.program.frames import BadFrame, RelayDecoder, RelayFrame
from redbox.sessions.errors import SessionEnded
from redbox_shared.credit import ReceiveCredit

START_S = 30.0
PING_S = 10.0
SILENT_S = 40.0
KILL_S = 10.0
MOST_STREAMS = frames.MAX_STREAMS - 24  # the relay may not have seen yet that some have ended
MAX_STATUS = 16 * 1024
FIRST_FRAME = frames.frame_bytes(frames.HELLO)
"""How a relay's output begins."""
MAX_PRINTED = 64 * 1024
FRAMES_AT_ONCE = CHUNK // (frames.PREFIX.size + 1 + frames.MAX_DATA)
"""Of input: so many fit into one frame of the agent's protocol, which costs more than theirs."""
FRAMES_A_TURN = 256
"""A chunk of the agent's may hold thousands: others get a turn after so many."""
LATE_FRAMES = 2 * frames.OUTPUT_WINDOW // frames.FRAME_COST
"""More than a relay still sends for a stream that red-box has ended: output and credit under way."""
RELAY_LOST = "RelayLost"


class RelayPipe(Protocol):
    """The step's input and output."""

    async def send(self, data: bytes) -> None:
        """Send input as it is taken."""

    async def receive(self) -> bytes:
        """Return the next output, b"" at the end."""

    def message(self) -> str:
        """After the end: what srun wrote."""


@dataclass(frozen=True, slots=True)
class StreamOutput:
    """Bytes of a stream; none: this direction is closed."""

    channel: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The end of a stream: an exit code, or a reason."""

    code: int | None
    reason: str
    message: str


class RelayStreamHandle:
    """One stream, as its session uses it."""

    def __init__(self, number: int, connection: RelayConnection) -> None:
        self.number = number
        self._connection = connection
        self.step_name = connection.step_name
        self._events: deque[StreamOutput | StreamStatus] = deque()
        self._changed = asyncio.Event()
        self._failure: SessionEnded | None = None
        self._received = ReceiveCredit(frames.OUTPUT_WINDOW)
        self._send_credit = frames.INPUT_WINDOW if connection.has_started else 0
        self._output_closed = False
        self.is_over = False

    # ---- from the connection
    def deliver(self, frame: RelayFrame) -> None:
        match frame.kind:
            case frames.DATA if len(frame.payload) > 1 and frame.payload[0] in (1, 2):
                if not self._received.receive(frames.data_cost(len(frame.payload) - 1)):
                    raise BadFrame("more bytes than its credit")
                self._events.append(StreamOutput(frame.payload[0], frame.payload[1:]))
            case frames.CLOSE if frame.payload == b"\1":  # it costs no credit
                if self._output_closed:
                    raise BadFrame("a stream that is closed twice")
                self._output_closed = True
                self._events.append(StreamOutput(1, b""))
            case frames.CREDIT:
                self.grant(frames.read_credit(frame.payload))
            case frames.STATUS if len(frame.payload) <= MAX_STATUS:
                self._events.append(read_status(frames.read_report(frame.payload)))
                self.is_over = True
            case _:
                raise BadFrame(f"kind {frame.kind} in a stream")
        self._changed.set()

    def grant(self, credit: int) -> None:
        self._send_credit = min(frames.INPUT_WINDOW, self._send_credit + credit)
        self._changed.set()

    def fail(self, failure: SessionEnded) -> None:
        self._failure = failure
        self.is_over = True
        self._changed.set()

    # ---- from the session
    async def receive(self) -> StreamOutput | StreamStatus:
        """Return the next output, at last the status; raises SessionEnded when the relay has gone."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            await self._wait()
        event = self._events.popleft()
        if isinstance(event, StreamOutput) and event.data:
            granted = self._received.consume(frames.data_cost(len(event.data)))
            if granted and not self.is_over:
                await self._connection.write(frames.CREDIT, self.number, frames.CREDIT_BYTES.pack(granted))
        return event

    async def send(self, data: frames.Buffer) -> None:
        """Send input as the command reads it; what comes after its end is dropped."""
        due: list[bytes] = []
        for start in range(0, len(data), frames.MAX_DATA):
            chunk = data[start : start + frames.MAX_DATA]
            cost = frames.data_cost(len(chunk))
            if len(due) == FRAMES_AT_ONCE or self._send_credit < cost:
                await self._connection.write_frames(due)
                due.clear()
            while self._send_credit < cost and not self.is_over:
                await self._wait()
            if self.is_over:
                return
            self._send_credit -= cost
            due.append(frames.data_frame(self.number, frames.STDIN, chunk))
        await self._connection.write_frames(due)

    async def close_input(self) -> None:
        await self._connection.write(frames.CLOSE, self.number, b"\0")

    async def resize(self, columns: int, rows: int) -> None:
        document = frames.order_bytes({"columns": columns, "rows": rows})
        await self._connection.write(frames.RESIZE, self.number, document)

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class RelayConnection:
    """The frames to and from one relay; `serve` must run as long as it is used."""

    def __init__(self, pipe: RelayPipe, node: str, step_name: str, is_suspended: Callable[[], bool]) -> None:
        self.step_name = step_name
        self._is_suspended = is_suspended
        self._pipe = pipe
        self._node = node
        self._decoder = RelayDecoder()
        self._streams: dict[int, RelayStreamHandle] = {}
        self._numbers = itertools.count(1)
        self._writing = asyncio.Lock()
        self._received_at = 0.0
        self._pings = 0  # not answered yet
        self._late_frames = 0  # that may still come for streams that are over
        self._stuck = asyncio.Event()
        self._late_kills = deque[int]()  # of streams that ended while the relay was stopped with its job
        self._started = asyncio.Event()
        self._failed = asyncio.Event()
        self.failure: SessionEnded | None = None

    @property
    def has_started(self) -> bool:
        """Before that nothing takes input: a stream is opened, and has no credit."""
        return self._started.is_set()

    async def serve(self) -> None:
        """Read until the relay has ended; then all streams fail."""
        self._received_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.TaskGroup() as tasks:
                checks = (self._until_late(), self._keep_alive(), self._until_silent(), self._until_stuck())
                checking = [tasks.create_task(check) for check in checks]
                await self._read()
                for task in checking:
                    task.cancel()
            self._fail(self._pipe.message() or "its step ended")
        except* BadFrame as group:
            self._fail(f"its relay broke the protocol: {group.exceptions[0]}")
        except* AgentError as group:
            self._fail(str(group.exceptions[0]))
        except* TimeoutError as group:
            self._fail(str(group.exceptions[0]))
        finally:
            self._fail("red-box ended its relay")

    def _fail(self, reason: str) -> None:
        if self.failure is not None:
            return
        what = "was lost" if self.has_started else "could not begin"
        self.failure = relay_lost(self._node, what, reason)
        for stream in self._streams.values():
            stream.fail(self.failure)
        self._failed.set()

    async def _read(self) -> None:
        turn = itertools.count(1)
        data = await self._first_output()
        while data:
            self._received_at = asyncio.get_running_loop().time()
            for frame in self._decoder.feed(data):
                self._dispatch(frame)
                if not next(turn) % FRAMES_A_TURN:
                    await asyncio.sleep(0)
            data = await self._pipe.receive()

    async def _first_output(self) -> bytes:
        """From the first frame on: a site's TaskProlog may print something before it."""
        output = b""
        while data := await self._pipe.receive():
            output += data
            if (start := output.find(FIRST_FRAME)) >= 0:
                return output[start:]
            if len(output) > MAX_PRINTED:
                raise BadFrame(f"{len(output)} bytes before its first frame")
        return b""

    def _dispatch(self, frame: RelayFrame) -> None:
        if frame.kind == frames.HELLO and not self.has_started:
            self._started.set()
            for waiting in self._streams.values():
                waiting.grant(frames.INPUT_WINDOW)
        elif frame.kind == frames.PONG and self._pings:
            self._pings -= 1
        elif (stream := self._streams.get(frame.stream)) is not None and not stream.is_over:
            stream.deliver(frame)
        elif self._late_frames:
            self._late_frames -= 1
        else:
            raise BadFrame(f"kind {frame.kind} for no stream")

    async def _until_late(self) -> None:
        """Raise TimeoutError if Slurm does not start it."""
        try:
            async with asyncio.timeout(START_S):
                await self._started.wait()
        except TimeoutError:
            raise TimeoutError(
                f"Slurm did not start its step within {START_S:.0f} s: the job's node may be busy, or unable "
                "to connect back to the login node (SrunPortRange in slurm.conf)."
            ) from None

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            while self._late_kills:
                await self.write(frames.KILL, self._late_kills[0])
                self._late_kills.popleft()  # others may have come meanwhile
            self._pings += 1
            await self.write(frames.PING, 0)

    async def _until_silent(self) -> None:
        """Raise TimeoutError; nothing is written here, for a write waits while the relay reads nothing."""
        now = asyncio.get_running_loop().time
        while (left := self._received_at + SILENT_S - now()) > 0:
            await asyncio.sleep(left)
            if self._is_suspended():  # Slurm has stopped it: it answers once the job is resumed
                self._received_at = now()
        raise TimeoutError(f"its relay was silent for {SILENT_S:.0f} s")

    async def _until_stuck(self) -> None:
        await self._stuck.wait()
        raise TimeoutError(f"its relay did not end a session within {KILL_S:.0f} s")

    async def write(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Write one frame; does nothing once the relay has gone.

        A cancelled write leaves no half of a frame, unless the frame is longer than what the agent's protocol
        sends at once: only an OPEN is, which is shielded.
        """
        await self.write_frames([frames.frame_bytes(kind, number, payload)])

    async def write_frames(self, due: Sequence[bytes]) -> None:
        """Write at most `FRAMES_AT_ONCE` of them together."""
        async with self._writing:
            if due and self.failure is None:
                await self._pipe.send(b"".join(due))

    @asynccontextmanager
    async def open(self, document: Mapping[str, Any]) -> AsyncIterator[RelayStreamHandle]:
        """Open a stream, which is killed if it has not ended at the end of the block."""
        if self.failure is not None:
            raise self.failure
        if len(self._streams) >= MOST_STREAMS:
            message = f"A job has at most {MOST_STREAMS} sessions and connections of one caller on a node."
            raise SessionEnded("TooManyRequests", message)
        stream = RelayStreamHandle(next(self._numbers), self)
        self._streams[stream.number] = stream
        opening = self.write(frames.OPEN, stream.number, frames.order_bytes(dict(document)))
        try:
            await asyncio.shield(asyncio.ensure_future(self._unless_failed(opening)))
            yield stream
        finally:
            try:
                if not stream.is_over:
                    stream.is_over = True
                    self._late_frames += LATE_FRAMES
                    await asyncio.shield(asyncio.ensure_future(self._kill(stream.number)))
            finally:  # also if it is cancelled once more
                self._streams.pop(stream.number, None)

    async def _unless_failed(self, writing: Coroutine[Any, Any, None]) -> None:
        """Write, or end with the relay: an agent that reads nothing would have it wait for ever."""
        tasks = [asyncio.ensure_future(writing), asyncio.ensure_future(self._failed.wait())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        if tasks[0] in done:
            await tasks[0]

    async def _kill(self, number: int) -> None:
        """End a stream; a relay that does not even read this is given up, with all its sessions."""
        try:
            async with asyncio.timeout(KILL_S):
                await self.write(frames.KILL, number)
        except TimeoutError:
            if self._is_suspended():
                self._late_kills.append(number)
            else:
                self._stuck.set()
        except AgentError:
            return


def read_status(document: Mapping[str, Any]) -> StreamStatus:
    code, reason, message = document.get("code"), document.get("reason", ""), document.get("message", "")
    if not (isinstance(reason, str) and isinstance(message, str)):
        raise BadFrame("a status without text")
    if code is not None and (type(code) is not int or not 0 <= code <= 255):  # noqa: PLR2004 # a byte
        raise BadFrame("an exit code beyond a byte")
    return StreamStatus(code, reason[:100], message[:4096])


def relay_lost(node: str, what: str, reason: str) -> SessionEnded:
    """Srun's words have no full stop, and others may follow."""
    where = f" on node {node}" if node else ""
    return SessionEnded(RELAY_LOST, f"The session{where} {what}: {reason.rstrip('.')}.")
