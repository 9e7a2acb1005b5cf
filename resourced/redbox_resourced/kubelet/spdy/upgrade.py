"""From an HTTP request to a connection that speaks SPDY/3.1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from aiohttp import web

from redbox_resourced.kubelet.client_transport import LEAVE_S, ClientTransport, first_of
from redbox_resourced.kubelet.spdy.held_pieces import HeldPieces
from redbox_resourced.kubelet.spdy.session import SpdySession
from redbox_resourced.kubelet.turns import Turn

PROTOCOL = "SPDY/3.1"
VERSION_HEADER = "X-Stream-Protocol-Version"
ACCEPTED_HEADER = "X-Accepted-Stream-Protocol-Versions"
READ_AHEAD = 128 * 1024
"""Of what has arrived and was not taken, then nothing more is read; the last read may bring 256 KiB more."""


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


class SpdyUpgrade:
    """A request for SPDY/3.1; its streams are those that the client opens."""

    def __init__(self, request: web.Request, protocol: str) -> None:
        self.response = web.StreamResponse()
        self._request = request
        self._protocol = protocol

    @asynccontextmanager
    async def serve(self, turn: Turn, interrupt: asyncio.Event | None = None) -> AsyncIterator[SpdySession]:
        """See `Upgrade`."""
        self.response.set_status(HTTPStatus.SWITCHING_PROTOCOLS)
        self.response.headers.update(
            {"Connection": "Upgrade", "Upgrade": PROTOCOL, VERSION_HEADER: self._protocol}
        )
        wire = AiohttpWire(self._request, self.response)
        await self.response.prepare(self._request)
        session = SpdySession(wire, turn=turn)
        receiving = asyncio.create_task(session.run())
        try:
            yield session
            session.leave()
            if interrupt is not None:
                await first_of(session.ended, interrupt)
            await asyncio.wait({receiving}, timeout=LEAVE_S)
        finally:
            receiving.cancel()
            wire.client.close(at_once=bool(session.problem))


class AiohttpWire:
    """The connection of a request, after its 101."""

    # aiohttp has no hook for SPDY: `request.protocol.set_parser`, as its own WebSocket does, takes the bytes.

    def __init__(self, request: web.Request, response: web.StreamResponse) -> None:
        """Before `prepare`: no byte of the client may reach the parser of HTTP."""
        self.client = ClientTransport(request)
        self._transport = self.client.asyncio
        self._response = response
        self._arrived = _Arrived(self._transport)
        parser: Any = self._arrived
        request.protocol.set_parser(parser)
        self.backlog, self.is_gone, self.close = (
            self.client.backlog,
            self.client.is_gone,
            self.client.close,
        )

    async def read(self) -> bytes:
        return await self._arrived.take()

    def send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    async def write(self, data: bytes) -> None:
        await self._response.write(data)


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
