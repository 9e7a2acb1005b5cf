"""Sessions and forwarded connections in running jobs, from the client's side.

async with open_exec(client, "train", ExecRequest(command=("hostname",))) as session:
    while not isinstance(event := await session.receive(), SessionStatus):
        print(event.data)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from aiohttp import ClientError, ClientWebSocketResponse, WSMsgType
from pydantic import ValidationError

from redbox_api.client import RedboxClient
from redbox_api.sessions.parts import (
    EXEC_PROTOCOL,
    PORTS_PROTOCOL,
    ExecRequest,
    SessionChannel,
    SessionStatus,
)

CONNECTION_LOST = "ConnectionLost"
CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class SessionData:
    """Bytes from the job; none: it has closed this channel."""

    channel: int
    data: bytes


class JobSession:
    """One open WebSocket."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send(self, data: bytes) -> None:
        """Send input, as fast as it is taken; what comes after the end is dropped."""
        for start in range(0, len(data), CHUNK):
            await self._send(SessionChannel.STDIN, data[start : start + CHUNK])

    async def close_input(self) -> None:
        await self._send(SessionChannel.CLOSE, bytes([SessionChannel.STDIN]))

    async def resize(self, columns: int, rows: int) -> None:
        await self._send(SessionChannel.RESIZE, b'{"Width":%d,"Height":%d}' % (columns, rows))

    async def receive(self) -> SessionData | SessionStatus:
        """The next data, at last the status, which a lost connection has, too."""
        message = await self._socket.receive()
        if message.type is not WSMsgType.BINARY or not message.data:
            return SessionStatus(
                status="Failure", reason=CONNECTION_LOST, message="the connection to red-box was lost"
            )
        channel, data = message.data[0], message.data[1:]
        if channel == SessionChannel.ERROR:
            return _status(data)
        if channel == SessionChannel.CLOSE:
            return SessionData(data[0] if data else SessionChannel.STDOUT, b"")
        return SessionData(channel, data)

    async def _send(self, channel: int, data: bytes) -> None:
        try:
            await self._socket.send_bytes(bytes([channel]) + data)
        except (ClientError, OSError):  # `receive` says why
            return


def _status(data: bytes) -> SessionStatus:
    try:
        return SessionStatus.model_validate_json(data)
    except ValidationError:
        return SessionStatus(
            status="Failure", reason=CONNECTION_LOST, message="red-box's status is not valid"
        )


@asynccontextmanager
async def open_exec(
    client: RedboxClient, key: str, request: ExecRequest, *, attempt: int = 1
) -> AsyncIterator[JobSession]:
    """Run a command in a running job; it ends with the block. Raises RedboxError for a refusal."""
    path = f"/v1/jobs/{quote(key, safe='')}/exec"
    async with _opened(client, path, {"attempt": attempt}, EXEC_PROTOCOL) as socket:
        await socket.send_str(request.model_dump_json())
        yield JobSession(socket)


@asynccontextmanager
async def open_port(
    client: RedboxClient,
    key: str,
    port: int,
    *,
    attempt: int = 1,
    node: str | None = None,
    task: int | None = None,
) -> AsyncIterator[JobSession]:
    """Connect to a port of a running job's node. Raises RedboxError for a refusal."""
    given = {"attempt": attempt, "node": node, "task": task}
    query = {name: value for name, value in given.items() if value is not None}
    path = f"/v1/jobs/{quote(key, safe='')}/ports/{port}"
    async with _opened(client, path, query, PORTS_PROTOCOL) as socket:
        yield JobSession(socket)


@asynccontextmanager
async def _opened(
    client: RedboxClient, path: str, query: dict[str, Any], protocol: str
) -> AsyncIterator[ClientWebSocketResponse]:
    socket = await client.open_socket(path, query, protocol)
    try:
        yield socket
    finally:
        await socket.close()
