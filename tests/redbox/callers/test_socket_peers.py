"""A WebSocket's client that sends thousands of messages at once, through a real uvicorn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import uvicorn

from redbox.callers.peers import PIECE, PeerAwareProtocol, PeerAwareSocketProtocol

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
    config = uvicorn.Config(
        count_messages,
        http=PeerAwareProtocol,
        ws=MeasuredProtocol,
        lifespan="off",
        log_level="critical",
        uds=str(path),
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(HANDSHAKE)
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(MESSAGE * COUNT)
            assert await reader.readexactly(5) == b"\x81\x03all"
            writer.close()
    finally:
        await server.shutdown()
    assert 0 < MeasuredProtocol.most <= PIECE // len(MESSAGE) + 1
