"""Sessions and forwarded connections in running jobs, from the client's side.

async with open_exec(client, "train", ExecRequest(command=("hostname",))) as session:
    while not isinstance(event := await session.receive(), SessionStatus):
        print(event.data)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from aiohttp import ClientError, ClientWebSocketResponse, WSMsgType
from pydantic import ValidationError

from redbox_api.client import RedboxClient
from redbox_api.sessions.parts import (
    ExecRequest,
    SessionChannel,
    SessionStatus,
    TerminalSize,
)
from redbox_shared.wire import EXEC_PROTOCOL, PORTS_PROTOCOL

CONNECTION_LOST = "ConnectionLost"
LARGEST_PIECE = 32 * 1024
"""Of what is sent in one message."""
RENEW_S = 60.0
"""Between looks for a newer token; the tokens of a service account are renewed minutes before they expire."""
Token = Callable[[], Awaitable[str | None]]
OUTPUTS = (SessionChannel.STDOUT, SessionChannel.STDERR)


@dataclass(frozen=True, slots=True)
class SessionData:
    """Bytes from the job; none: it has closed this channel."""

    channel: SessionChannel
    data: bytes


class JobSession:
    """One WebSocket: a command that runs in a job, or a connection to one of its ports.

    What is sent after its end is dropped: `receive` says why it ended. It outlives its first token: each
    newer one is sent to red-box.
    """

    def __init__(self, socket: ClientWebSocketResponse[bool], token: Token, sent: str | None) -> None:
        self._socket = socket
        self._renewing = asyncio.create_task(self._renew(token, sent))

    async def start(self, request: ExecRequest) -> None:
        """Before all else in a session; a connection to a port has no command."""
        try:
            await self._socket.send_str(request.model_dump_json())
        except (ClientError, OSError):
            return

    async def send(self, data: bytes) -> None:
        """To the command's stdin, or to the port; waits while red-box does not read."""
        for start in range(0, len(data), LARGEST_PIECE):
            await self._send(SessionChannel.STDIN, data[start : start + LARGEST_PIECE])

    async def close_input(self) -> None:
        await self._send(SessionChannel.CLOSE, bytes([SessionChannel.STDIN]))

    async def resize(self, size: TerminalSize) -> None:
        await self._send(SessionChannel.RESIZE, b'{"Width":%d,"Height":%d}' % (size.columns, size.rows))

    async def receive(self) -> SessionData | SessionStatus:
        """The next data, at last the status, which a lost connection has, too."""
        while True:
            message = await self._socket.receive()
            if message.type is not WSMsgType.BINARY:
                why = f"red-box ended the session without a status (close code {self._socket.close_code})"
                return lost(why)
            data: bytes = message.data
            if data[:1] == bytes([SessionChannel.ERROR]):
                return _status(data[1:])
            for output in OUTPUTS:
                if data == bytes([SessionChannel.CLOSE, output]):
                    return SessionData(output, b"")
                if data[:1] == bytes([output]) and len(data) > 1:
                    return SessionData(output, data[1:])

    async def close(self) -> None:
        """Ends what runs in it, too; it may be closed already."""
        self._renewing.cancel()
        await self._socket.close()

    async def _renew(self, token: Token, sent: str | None) -> None:
        while not self._socket.closed:
            await asyncio.sleep(RENEW_S)
            with suppress(Exception):  # of any kind of token; until there is one, the last one counts
                newest = await token()
                if newest is not None and newest != sent:
                    await self._send(SessionChannel.TOKEN, newest.encode())
                    sent = newest

    async def _send(self, channel: SessionChannel, data: bytes) -> None:
        try:
            await self._socket.send_bytes(bytes([channel]) + data)
        except (ClientError, OSError):
            return


def lost(why: str) -> SessionStatus:
    """The end of a session that has no status of red-box."""
    return SessionStatus(status="Failure", reason=CONNECTION_LOST, message=why)


def _status(data: bytes) -> SessionStatus:
    try:
        return SessionStatus.model_validate_json(data)
    except ValidationError:
        return lost("the end of the session is not a Status")


async def open_session(client: RedboxClient, key: str, *, attempt: int = 1) -> JobSession:
    """Before its command, which `start` gives it; its caller closes it. Raises RedboxError for a refusal."""
    path = f"/v1/jobs/{quote(key, safe='')}/exec"
    return await _open(client, path, {"attempt": attempt}, EXEC_PROTOCOL)


async def open_connection(
    client: RedboxClient,
    key: str,
    port: int,
    *,
    attempt: int = 1,
    node: str | None = None,
    task: int | None = None,
) -> JobSession:
    """To a port of a running job's node; its caller closes it. Raises RedboxError for a refusal."""
    given = {"attempt": attempt, "node": node, "task": task}
    query = {name: value for name, value in given.items() if value is not None}
    path = f"/v1/jobs/{quote(key, safe='')}/ports/{port}"
    return await _open(client, path, query, PORTS_PROTOCOL)


async def _open(client: RedboxClient, path: str, query: Mapping[str, Any], protocol: str) -> JobSession:
    sent = await client.token()
    return JobSession(await client.open_websocket(path, query, protocol), client.token, sent)


@asynccontextmanager
async def open_exec(
    client: RedboxClient, key: str, request: ExecRequest, *, attempt: int = 1
) -> AsyncIterator[JobSession]:
    """Run a command in a running job; it ends with the block. Raises RedboxError for a refusal."""
    session = await open_session(client, key, attempt=attempt)
    try:
        await session.start(request)
        yield session
    finally:
        await session.close()


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
    """A connection that is closed with the block. Raises RedboxError for a refusal."""
    session = await open_connection(client, key, port, attempt=attempt, node=node, task=task)
    try:
        yield session
    finally:
        await session.close()
