"""Messages of a session's client, which may come thousands at a time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from redbox.http.answers.command_socket import CommandSocket

COUNT = 1000


class FloodingSocket:
    """Has many messages ready at once."""

    def __init__(self) -> None:
        self.left = COUNT

    async def receive(self) -> dict[str, Any]:
        if not self.left:
            await asyncio.Future()
        self.left -= 1
        return {"type": "websocket.receive", "bytes": b"\0"}


class IdleSession:
    """Takes everything at once."""

    async def send(self, data: bytes) -> None:
        del data


async def refuse(token: bytes) -> bool:
    del token
    return False


async def test_many_messages_at_once_leave_turns_to_others() -> None:
    socket = FloodingSocket()
    wire = CommandSocket(cast("Any", socket), stall_s=60, renew=refuse)
    reading = asyncio.create_task(wire._from_client(cast("Any", IdleSession())))
    turns = 0
    while socket.left:
        await asyncio.sleep(0)
        turns += 1
    reading.cancel()
    assert turns >= COUNT // 64
