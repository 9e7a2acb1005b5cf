"""One WebSocket whose messages belong to channels, which are there from its beginning.

While a channel's inbox is full nothing is read from the connection, as with SPDY.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from aiohttp import WSMsgType, web

from redbox_resourced.kubelet.client_transport import gets_room
from redbox_resourced.kubelet.spdy.errors import StreamEnded
from redbox_resourced.kubelet.spdy.frames import ResetStatus
from redbox_resourced.kubelet.spdy.held_pieces import HeldPieces
from redbox_resourced.kubelet.spdy.limits import SpdyLimits
from redbox_resourced.kubelet.turns import Turn
from redbox_resourced.kubelet.websocket.messages import BadMessage, ChannelMessage, Subprotocol

TAKEN = {WSMsgType.BINARY, WSMsgType.TEXT, WSMsgType.PING, WSMsgType.PONG}
"""All others end the session."""
MAX_PIECE = 32 * 1024
"""Of a message of ours."""
LEAST_COST = 4 * 1024
"""Of a message, in bytes copied: one read may bring tens of thousands of empty ones."""


class Channel:
    """One channel, as SPDY's streams are; it has no half: each end ends both directions."""

    def __init__(self, session: ChannelSession, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.headers = headers
        self.ended = asyncio.Event()
        self.is_sent = False
        """Nothing more is sent on it."""
        self._session = session
        self._inbox = HeldPieces()
        self._arrived = asyncio.Event()
        self._is_received = False

    @property
    def held_bytes(self) -> int:
        return self._inbox.cost

    @property
    def was_reset(self) -> bool:
        return self.ended.is_set()

    async def read(self) -> bytes:
        """All that has arrived; none at the end, or if input is unwanted."""
        while not self._inbox.cost and not self._is_received:
            self._arrived.clear()
            await self._arrived.wait()
        data = self._inbox.take()
        self._session.on_read()
        return data

    async def write(self, data: bytes) -> None:
        """Waits while the client does not read; raises StreamEnded."""
        for start in range(0, len(data), MAX_PIECE):
            if self.is_sent:
                raise StreamEnded
            await self._session.write(self, data[start : start + MAX_PIECE])

    def finish(self, data: bytes = b"") -> None:
        """The last bytes; the client learns of the end when all channels have ended."""
        if not self.is_sent:
            self.is_sent = True
            self._session.send_last(self, data)
        self.discard_input()

    def reset(self, status: ResetStatus = ResetStatus.CANCEL) -> None:  # noqa: ARG002 (no message carries it)
        self.on_end()
        self.discard_input()
        self._session.send_last(self, b"")

    def discard_input(self) -> None:
        self._is_received = True
        self._arrived.set()
        self._inbox.take()
        self._session.on_read()

    def on_data(self, message: ChannelMessage) -> None:
        if message.data and not self._is_received:
            self._inbox.add(message.data)
        self._is_received = self._is_received or message.is_last
        self._arrived.set()

    def on_end(self) -> None:
        """It was reset, or the connection has ended: bytes that have arrived can still be read."""
        self.is_sent = self._is_received = True
        self.ended.set()
        self._arrived.set()


class ChannelSession:
    """The channels of one connection; `run` it in a task."""

    def __init__(
        self,
        websocket: web.WebSocketResponse,
        subprotocol: Subprotocol,
        channels: Sequence[Mapping[str, str] | None],
        turn: Turn,
        is_gone: Callable[[], bool],
    ) -> None:
        """`channels` by number: the headers that SPDY would give each, None for those that are ignored."""
        self.ended = asyncio.Event()
        self.problem = ""
        """Why it was ended from here: one sentence for the log."""
        self.has_status = subprotocol.has_status
        self._websocket = websocket
        self._subprotocol = subprotocol
        self._limits = SpdyLimits()
        self._is_gone = is_gone
        self._turn = turn
        self._channels = {
            number: Channel(self, number, headers)
            for number, headers in enumerate(channels)
            if headers is not None
        }
        self._unaccepted = deque(self._channels.values())
        self._last: list[bytes] = []
        self._all_sent = asyncio.Event()
        self._has_room = asyncio.Event()
        self._wrote = False

    async def greet(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Before anything else is sent."""
        with suppress(OSError):
            for number, data in messages:
                await self._send(self._subprotocol.write(number, data))

    async def run(self) -> None:
        """Until the client leaves, or breaks the protocol or a bound. Raises nothing."""
        try:
            await self._receive()
        except BadMessage as bad:
            self.problem = str(bad)
        except OSError as error:
            self.problem = f"the connection broke: {error}"
        finally:
            self._end()

    async def accept(self) -> Channel | None:
        """The next of those that there are from the beginning; then None, once all have ended."""
        if self._unaccepted:
            return self._unaccepted.popleft()
        await self._all_sent.wait()
        return None

    def refuse_streams(self) -> None:
        """There are no more."""

    async def leave(self) -> None:
        """Send what the channels sent last, and say that this side has ended."""
        with suppress(OSError):
            for message in self._last:
                await self._send(message)
            await self._websocket.close()

    async def _receive(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._limits.idle_s):
                    message = await self._websocket.receive()
            except TimeoutError:
                if self._wrote:
                    self._wrote = False
                    continue
                self.problem = f"no message came for {self._limits.idle_s:g} s"
                return
            if message.type not in TAKEN:
                return
            if message.type is WSMsgType.PING:
                await self._websocket.pong(message.data)
            elif message.type is not WSMsgType.PONG:
                self._handle(self._subprotocol.read(bytes(message.data)))
            await self._turn.copied(max(len(message.data), LEAST_COST))
            if not await gets_room(self._has_room, self._is_full, self._is_gone):
                return

    def _is_full(self) -> bool:
        held = [channel.held_bytes for channel in self._channels.values()]
        return max(held) >= self._limits.stream_bytes or sum(held) >= self._limits.session_bytes

    def _handle(self, message: ChannelMessage | None) -> None:
        channel = self._channels.get(message.channel) if message else None
        if message and channel:
            channel.on_data(message)

    # -- for the channels

    async def write(self, channel: Channel, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._limits.unread_s):
                await self._send(self._subprotocol.write(channel.number, data))
        except TimeoutError:
            self.problem = f"the client read nothing for {self._limits.unread_s:g} s"
            self._end()
            raise StreamEnded from None
        except OSError as error:
            raise StreamEnded from error
        await self._turn.copied(len(data))

    def send_last(self, channel: Channel, data: bytes) -> None:
        if data:
            self._last.append(self._subprotocol.write(channel.number, data))
        if all(channel.is_sent for channel in self._channels.values()):
            self._all_sent.set()

    def on_read(self) -> None:
        self._has_room.set()

    # -- the end

    async def _send(self, message: bytes) -> None:
        self._wrote = True
        if self._subprotocol.is_text:
            await self._websocket.send_str(message.decode())
        else:
            await self._websocket.send_bytes(message)

    def _end(self) -> None:
        self.ended.set()
        for channel in self._channels.values():
            channel.on_end()
        self._all_sent.set()
        self._has_room.set()
