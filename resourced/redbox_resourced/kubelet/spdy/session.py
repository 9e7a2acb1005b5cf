"""One connection that speaks SPDY/3.1 with an API server: its streams, with everything that is held bounded.

A client opens the streams; each is confirmed at once, as kubelets do. While a stream's inbox is full nothing
is read from the connection: API servers know no windows, so one slow reader holds back the other streams of
its own connection, and those of no other one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from redbox_resourced.kubelet.client_transport import gets_room
from redbox_resourced.kubelet.spdy.errors import SpdyError, StreamEnded
from redbox_resourced.kubelet.spdy.frames import (
    Event,
    FrameParser,
    GoAwayStatus,
    InitialWindow,
    NewStream,
    PeerLeaves,
    Ping,
    ResetStatus,
    StreamData,
    StreamReset,
    WindowGrown,
    data_header,
    goaway_frame,
    ping_frame,
    reply_frame,
    reset_frame,
    window_frame,
)
from redbox_resourced.kubelet.spdy.headers import KEPT, HeaderPacker
from redbox_resourced.kubelet.spdy.held_pieces import HeldPieces
from redbox_resourced.kubelet.spdy.limits import SpdyLimits
from redbox_resourced.kubelet.spdy.windows import FlowWindow
from redbox_resourced.kubelet.spdy.wire import Wire
from redbox_resourced.kubelet.turns import Turn

MAX_PIECE = 32 * 1024
"""Of a DATA frame of ours: a larger one alone would fill what may be unsent."""
SERVED_S = 0.0002
"""What it costs to serve a new stream, elsewhere than here."""


class SpdyStream:
    """One stream; of its methods, those that begin with `on_` are the session's."""

    def __init__(self, session: SpdySession, event: NewStream, window: FlowWindow) -> None:
        self.number = event.stream
        self.headers = {name: value for name, value in event.headers.items() if name in KEPT}
        self.window = window
        self.is_sent = False
        """Nothing more is sent on it."""
        self.ended = asyncio.Event()
        """Set when it was reset, by either side, or its connection has ended: the peer wants nothing more."""
        self._session = session
        self._inbox = HeldPieces()
        self._taken = 0
        """The cost of what its reader has, and may not have passed on."""
        self._arrived = asyncio.Event()
        self._is_received = event.is_last
        self._discards = False

    @property
    def held_bytes(self) -> int:
        return self._inbox.cost

    @property
    def was_reset(self) -> bool:
        return self.ended.is_set()

    @property
    def is_over(self) -> bool:
        """In both directions, as far as anybody here is concerned."""
        return self.is_sent and (self._is_received or self._discards)

    async def read(self) -> bytes:
        """All that has arrived; none at the end of its direction or connection, or if input is unwanted.

        It counts for the connection until the next read, or the end of the stream's input.
        """
        self._pass_on()
        while not self._inbox.cost and not self._is_received and not self._discards:
            self._arrived.clear()
            await self._arrived.wait()
        return self._take()

    def discard_input(self) -> None:
        """Whatever the peer sends is not wanted; a reader that waits for it returns."""
        self._discards = True
        self._arrived.set()
        self._take()
        self._pass_on()

    def _take(self) -> bytes:
        self._taken += self._inbox.cost
        data = self._inbox.take()
        self._session.on_read(self, len(data))
        return data

    def _pass_on(self) -> None:
        cost, self._taken = self._taken, 0
        self._session.on_passed_on(cost)

    async def write(self, data: bytes) -> None:
        """Waits while the peer does not read; raises StreamEnded."""
        await self._session.write(self, data)

    def finish(self, data: bytes = b"") -> None:
        """Send the last bytes, which are few, and end our direction, without waiting."""
        if not self.is_sent:
            self.is_sent = True
            self._session.send_last(self, data)

    def reset(self, status: ResetStatus = ResetStatus.CANCEL) -> None:
        """End both directions."""
        if not self.is_sent or not self._is_received:
            self._session.send_reset(self, status)
        self.on_end()
        self.discard_input()

    def on_data(self, event: StreamData) -> int:
        """How much more it holds."""
        before = self._inbox.cost
        if event.data and not self._discards and not self._is_received:
            self._inbox.add(event.data)
        self._is_received = self._is_received or event.is_last
        self._arrived.set()
        return self._inbox.cost - before

    def on_end(self) -> None:
        """It was reset, or the connection has ended: bytes that have arrived can still be read."""
        self.is_sent = self._is_received = True
        self.ended.set()
        self._arrived.set()


class SpdySession:
    """The streams of one connection; `run` it in a task, and `accept` what the peer opens."""

    has_status = True

    def __init__(self, wire: Wire, limits: SpdyLimits | None = None, turn: Turn | None = None) -> None:
        """`turn` is that of all connections whose frames are handled one after the other."""
        self.ended = asyncio.Event()
        self.problem = ""
        """Why it was ended from here: one sentence for the log."""
        self._wire = wire
        self._limits = limits or SpdyLimits()
        self._parser = FrameParser()
        self._packer: HeaderPacker | None = HeaderPacker()
        """None: no more streams are accepted."""
        self._streams: dict[int, SpdyStream] = {}
        self._unaccepted: deque[SpdyStream] = deque()
        self._opened = asyncio.Event()
        self._last_stream = 0
        self._turn = turn or Turn()
        self._peer_leaves = False
        self._held = 0
        self._full: set[int] = set()
        self._has_room = asyncio.Event()
        self._writing = asyncio.Lock()
        self._window = FlowWindow()
        self._initial_window = self._window.initial
        self._has_windows = False
        self._window_changed = asyncio.Event()

    @property
    def held_bytes(self) -> int:
        """All that was received and not read."""
        return self._held + self._parser.held_bytes

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    async def run(self) -> None:
        """Until the peer leaves; if it breaks the protocol or a bound it is sent GOAWAY. Raises nothing."""
        try:
            await self._receive()
        except SpdyError as error:
            self.problem = str(error)
            self._send(goaway_frame(self._last_stream, GoAwayStatus.PROTOCOL_ERROR))
        except TimeoutError:
            self.problem = f"no frame came for {self._limits.idle_s:g} s"
        except OSError as error:
            self.problem = f"the connection broke: {error}"
        finally:
            self._end()

    async def accept(self) -> SpdyStream | None:
        """The next stream that the peer has opened and not reset; None once the connection has ended."""
        while True:
            while self._unaccepted:
                stream = self._unaccepted.popleft()
                if not stream.was_reset:
                    return stream
            if self.ended.is_set():
                return None
            self._opened.clear()
            await self._opened.wait()

    def refuse_streams(self) -> None:
        """Reset each stream that the peer opens from now on, and those that wait to be accepted.

        Unread, their input would stop the connection. Nothing is packed or unpacked any more.
        """
        self._packer = None
        self._parser.drop_headers()
        while self._unaccepted:
            self._unaccepted.popleft().reset(ResetStatus.REFUSED_STREAM)

    def leave(self) -> None:
        """Tell the peer that this side opens and accepts nothing more."""
        self._send(goaway_frame(self._last_stream, GoAwayStatus.OK))

    async def _receive(self) -> None:
        while not self._peer_leaves:
            async with asyncio.timeout(self._limits.idle_s):
                data = await self._wire.read()
            if not data:
                return
            events = self._parser.feed(data)
            while await self._handle_some(events):
                if not await gets_room(self._has_room, self._is_full, self._wire.is_gone):
                    return

    async def _handle_some(self, events: Iterator[Event]) -> bool:
        """As many as fit into a turn and a stream's inbox; False if these were all."""
        async with self._turn.taken():
            for event in events:
                self._handle(event)
                if self._peer_leaves:
                    return False
                if self._wire.backlog() > self._limits.backlog_bytes:
                    raise SpdyError("the peer does not read the answers to its frames")
                if self._is_full() or self._turn.is_over:
                    return True
        return False

    def _is_full(self) -> bool:
        return bool(self._full) or self._held >= self._limits.session_bytes

    def _handle(self, event: Event) -> None:
        match event:
            case NewStream():
                self._open(event)
            case StreamData() if stream := self._streams.get(event.stream):
                self._held += stream.on_data(event)
                if stream.held_bytes >= self._limits.stream_bytes:
                    self._full.add(stream.number)
                self._forget_if_over(stream)
            case StreamReset() if stream := self._streams.pop(event.stream, None):
                stream.on_end()
                self._window_changed.set()
            case PeerLeaves():
                self._peer_leaves = True
            case Ping() if event.number & 1:
                self._send(ping_frame(event.number))
            case WindowGrown():
                self._grow_window(event)
            case InitialWindow():
                self._set_initial_window(event.size)
            case _:
                pass  # of streams that have ended, or an answer to nothing

    def _open(self, event: NewStream) -> None:
        if event.stream <= self._last_stream or not event.stream & 1:
            raise SpdyError(f"a client cannot open stream {event.stream} after {self._last_stream}")
        self._last_stream = event.stream
        if not self._packer or max(len(self._streams), len(self._unaccepted)) >= self._limits.streams:
            self._send(reset_frame(event.stream, ResetStatus.REFUSED_STREAM))
            return
        stream = SpdyStream(self, event, FlowWindow(self._initial_window))
        self._streams[stream.number] = stream
        self._turn.charge(SERVED_S)
        self._send(reply_frame(stream.number, self._packer.pack({})))
        self._unaccepted.append(stream)
        self._opened.set()

    # -- for the streams

    async def write(self, stream: SpdyStream, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            async with self._writing:  # one waits for the peer to read, the others for their turn
                if stream.is_sent:
                    raise StreamEnded
                size = min(len(rest), self._room(stream))
                if size > 0:
                    await self._write_piece(stream, bytes(rest[:size]))
                    await self._turn.copied(size)
                    rest = rest[size:]
                    continue
                self._window_changed.clear()
            await self._window_changed.wait()

    def send_last(self, stream: SpdyStream, data: bytes) -> None:
        self._send(data_header(stream.number, len(data), is_last=True) + data)
        self._forget_if_over(stream)

    def send_reset(self, stream: SpdyStream, status: ResetStatus) -> None:
        self._send(reset_frame(stream.number, status))
        self._window_changed.set()

    def on_passed_on(self, cost: int) -> None:
        self._held -= cost
        self._has_room.set()

    def on_read(self, stream: SpdyStream, size: int) -> None:
        if stream.held_bytes < self._limits.stream_bytes:
            self._full.discard(stream.number)
        self._has_room.set()
        self._forget_if_over(stream)
        stream.window.unacknowledged += size
        self._window.unacknowledged += size
        self._grant(stream)

    # -- flow control

    def _room(self, stream: SpdyStream) -> int:
        if not self._has_windows:
            return MAX_PIECE
        return min(MAX_PIECE, stream.window.room, self._window.room)

    async def _write_piece(self, stream: SpdyStream, piece: bytes) -> None:
        stream.window.sent += len(piece)
        self._window.sent += len(piece)
        try:
            async with asyncio.timeout(self._limits.unread_s):
                await self._wire.write(data_header(stream.number, len(piece)) + piece)
        except TimeoutError:
            self.problem = f"the peer read nothing for {self._limits.unread_s:g} s"
            self._end()
            raise StreamEnded from None
        except OSError as error:
            raise StreamEnded from error

    def _grow_window(self, event: WindowGrown) -> None:
        self._take_part()
        stream = self._streams.get(event.stream)
        if event.stream == 0:
            if not self._window.grow(event.by):
                raise SpdyError("the window of the connection is too large")
        elif stream and not stream.window.grow(event.by):
            stream.reset(ResetStatus.FLOW_CONTROL_ERROR)

    def _set_initial_window(self, size: int) -> None:
        self._take_part()
        self._initial_window = size
        for stream in self._streams.values():
            stream.window.initial = size

    def _take_part(self) -> None:
        self._has_windows = True
        self._window_changed.set()
        for stream in list(self._streams.values()):
            self._grant(stream)

    def _grant(self, stream: SpdyStream) -> None:
        if not self._has_windows:
            return
        for number, window in ((stream.number, stream.window), (0, self._window)):
            if by := window.to_grant():
                self._send(window_frame(number, by))

    # -- the end

    def _send(self, frame: bytes) -> None:
        if not self.ended.is_set():
            self._wire.send(frame)

    def _forget_if_over(self, stream: SpdyStream) -> None:
        if stream.is_over and not stream.held_bytes:
            self._streams.pop(stream.number, None)

    def _end(self) -> None:
        self.ended.set()
        for stream in self._streams.values():
            stream.on_end()
        self._opened.set()
        self._window_changed.set()
        self._has_room.set()
