"""From an HTTP request to a connection that speaks SPDY/3.1."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from aiohttp import web

from redbox_resourced.kubelet.spdy.held_pieces import HeldPieces
from redbox_resourced.kubelet.spdy.session import SpdySession
from redbox_resourced.kubelet.turns import Turn
from redbox_shared.socket_options import KEEP_ALIVE

PROTOCOL = "SPDY/3.1"
VERSION_HEADER = "X-Stream-Protocol-Version"
ACCEPTED_HEADER = "X-Accepted-Stream-Protocol-Versions"
READ_AHEAD = 128 * 1024
"""Of what has arrived and was not taken, then nothing more is read; the last read may bring 256 KiB more."""
MOST_UNSENT = 64 * 1024
"""Of output, which waits then. TLS would hold as much as tells a client that reads none of our answers."""
LEAVE_S = 5.0
"""For the client to read our last frames and close the connection, where it is not to be waited for."""
UNREAD_S = 3600.0
"""For a client that has stopped reading, as `kubectl exec ... | less`. Closed earlier, its next PING would be
answered by a reset, upon which an API server drops what its client has not read, the status with it."""


class NotUpgradable(Exception):
    """The request does not ask for SPDY/3.1, or for no protocol of ours; `accepted` are those that it may."""

    def __init__(self, message: str, accepted: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.accepted = accepted


def negotiate(request: web.Request, accepted: Sequence[str]) -> str:
    """The first of our protocols that the client offers."""
    upgrade, connection = request.headers.get("Upgrade", ""), request.headers.get("Connection", "")
    if PROTOCOL.lower() not in upgrade.lower() or "upgrade" not in connection.lower():
        raise NotUpgradable(f"unable to upgrade: this kubelet speaks {PROTOCOL}, and the request does not")
    lists = request.headers.getall(VERSION_HEADER, [])
    offered = {name.strip() for names in lists for name in names.split(",")}
    chosen = next((name for name in accepted if name in offered), None)
    if chosen is None:
        message = f"unable to upgrade: {VERSION_HEADER} names none of {', '.join(accepted)}"
        raise NotUpgradable(message, accepted)
    return chosen


@asynccontextmanager
async def upgraded(
    request: web.Request,
    response: web.StreamResponse,
    protocol: str,
    turn: Turn,
    interrupt: asyncio.Event | None = None,
) -> AsyncIterator[SpdySession]:
    """Answer 101 and serve SPDY until the body ends; then the client has time to read the last frames.

    Until `interrupt` is set, or without it, that is a moment.
    """
    response.set_status(HTTPStatus.SWITCHING_PROTOCOLS)
    response.headers.update({"Connection": "Upgrade", "Upgrade": PROTOCOL, VERSION_HEADER: protocol})
    wire = AiohttpWire(request, response)
    await response.prepare(request)
    session = SpdySession(wire, turn=turn)
    receiving = asyncio.create_task(session.run())
    try:
        yield session
        session.leave()
        if interrupt is not None:
            await _either(session.ended, interrupt)
        await asyncio.wait({receiving}, timeout=LEAVE_S)
    finally:
        receiving.cancel()
        wire.close(at_once=bool(session.problem))


async def _either(*events: asyncio.Event) -> None:
    waiting = {asyncio.create_task(event.wait()) for event in events}
    try:
        await asyncio.wait(waiting, timeout=UNREAD_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


class AiohttpWire:
    """The connection of a request, after its 101."""

    # aiohttp has no hook for SPDY: `request.protocol.set_parser`, as its own WebSocket does, takes the bytes.

    def __init__(self, request: web.Request, response: web.StreamResponse) -> None:
        """Before `prepare`: no byte of the client may reach the parser of HTTP."""
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        transport.set_write_buffer_limits(MOST_UNSENT)
        self._transport = transport
        self._socket = transport.get_extra_info("socket")
        for option in KEEP_ALIVE:
            self._socket.setsockopt(*option)
        self._response = response
        self._arrived = _Arrived(transport)
        parser: Any = self._arrived
        request.protocol.set_parser(parser)

    async def read(self) -> bytes:
        return await self._arrived.take()

    def send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    async def write(self, data: bytes) -> None:
        await self._response.write(data)

    def backlog(self) -> int:
        # A TLS transport of Python 3.11 that was closed twice, here and by aiohttp, raises AttributeError.
        return 0 if self._transport.is_closing() else self._transport.get_write_buffer_size()

    def is_gone(self) -> bool:
        """By the kernel: asyncio looks for no end of a connection that it does not read."""
        if self._transport.is_closing():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    def close(self, *, at_once: bool) -> None:
        """`at_once`: without sending what the client has not read."""
        if at_once:
            self._transport.abort()
            return
        if self.backlog():
            asyncio.get_running_loop().call_later(LEAVE_S, self._transport.abort)
        self._transport.close()


class _Arrived:
    """The bytes that have arrived; aiohttp feeds them, as to a parser of WebSocket.

    asyncio's StreamReader copies each byte four times on this way.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._pieces = HeldPieces()
        self._changed = asyncio.Event()
        self._is_at_end = False
        self._is_paused = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        if data:
            self._pieces.add(data)
            self._changed.set()
            if self._pieces.cost >= READ_AHEAD and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
        return False, b""

    def feed_eof(self) -> None:
        self._is_at_end = True
        self._changed.set()

    async def take(self) -> bytes:
        """All that is there, after a wait for the first; none at the end."""
        while not self._pieces.cost and not self._is_at_end:
            self._changed.clear()
            await self._changed.wait()
        data = self._pieces.take()
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return data
