"""A WebSocket's client that sends thousands of messages at once, through a real uvicorn."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from redbox.callers.peers import PIECE, UNREAD_S, PeerAwareSocketProtocol
from tests.redbox.callers.server import serving

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
MESSAGE = b"\x82\x81" + bytes(4) + b"\0"
COUNT = 50_000


class MeasuredProtocol(PeerAwareSocketProtocol):
    """Remembers how many messages were parsed without a pause."""

    most = 0

    def handle_events(self) -> None:
        before = self.queue.qsize()
        super().handle_events()
        MeasuredProtocol.most = max(MeasuredProtocol.most, self.queue.qsize() - before)


async def count_messages(_scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    for _ in range(COUNT):
        assert (await receive())["bytes"] == b"\0"
    await send({"type": "websocket.send", "text": "all"})
    await receive()


async def test_a_flood_of_messages_is_parsed_in_pieces_and_arrives_whole(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with serving(count_messages, ws=MeasuredProtocol, uds=str(path)), asyncio.timeout(60):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(HANDSHAKE)
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(MESSAGE * COUNT)
        assert await reader.readexactly(5) == b"\x81\x03all"
        writer.close()
    assert 0 < MeasuredProtocol.most <= PIECE // len(MESSAGE) + 1


class KnownProtocol(PeerAwareSocketProtocol):
    """Of the newest connection."""

    newest: KnownProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        KnownProtocol.newest = self
        super().connection_made(transport)


async def end_at_once(_scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close"})


async def test_a_client_that_does_not_read_for_long_is_not_taken_for_gone() -> None:
    """With TCP_USER_TIMEOUT the kernel ends a connection whose bytes nobody reads for so long."""
    async with serving(end_at_once, ws=KnownProtocol, port=0) as server, asyncio.timeout(60):
        address = server.servers[0].sockets[0].getsockname()[:2]
        reader, writer = await asyncio.open_connection(*address)
        writer.write(HANDSHAKE)
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        assert (await reader.readexactly(4))[:1] == b"\x88"
        protocol = KnownProtocol.newest
        opened = protocol.transport.get_extra_info("socket")
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
        assert protocol.close_timer is not None
        assert protocol.close_timer.when() - asyncio.get_running_loop().time() > UNREAD_S / 2
        assert not protocol._host_is_gone()
        writer.close()
