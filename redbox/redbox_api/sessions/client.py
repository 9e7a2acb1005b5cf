"""Sessions in running jobs, from the client's side.

async with open_exec(client, "train", ExecRequest(command=("hostname",))) as session:
    while not isinstance(event := await session.receive(), SessionStatus):
        print(event.data)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from aiohttp import ClientError, ClientWebSocketResponse, WSMsgType
from pydantic import ValidationError

from redbox_api.client import RedboxClient
from redbox_api.connections import upgrade_header
from redbox_api.sessions.parts import (
    ExecRequest,
    SessionChannel,
    SessionStatus,
    TerminalSize,
)
from redbox_shared.backoff import Backoff
from redbox_shared.wire import EXEC_PROTOCOL, STREAM_HEADER

CONNECTION_LOST = "ConnectionLost"
LARGEST_PIECE = 128 * 1024
"""Of what is sent in one message."""
RENEW_S = 60.0
"""Between checks for a newer token; tokens of service accounts are renewed minutes before they expire."""
RENEW_WITHIN_S = 15.0
RENEW_BACKOFF = Backoff(10.0, 10.0)
"""After a renewal that failed: the token has a minute left, or several."""
Token = Callable[[], Awaitable[str | None]]
Renew = Callable[[str], Awaitable[None]]
"""Have red-box go on by this token; raises if it does not."""
OUTPUTS = (SessionChannel.STDOUT, SessionChannel.STDERR)


@dataclass(frozen=True, slots=True)
class SessionData:
    """Bytes from the job; none: it has closed this channel."""

    channel: SessionChannel
    data: bytes


class RenewedSocket:
    """A WebSocket that outlives its first token: each newer one is sent to red-box.

    What is sent after its end is dropped: what is received says why it ended.
    """

    def __init__(
        self, socket: ClientWebSocketResponse[bool], token: Token, sent: str | None, renew: Renew
    ) -> None:
        self.socket = socket
        self._renewing = asyncio.create_task(self._renew(token, sent, renew))

    async def send(self, message: bytes) -> None:
        with suppress(ClientError, OSError):
            await self.socket.send_bytes(message)

    async def receive(self) -> bytes | None:
        """The next message; None at the end."""
        message = await self.socket.receive()
        return message.data if message.type is WSMsgType.BINARY else None

    @property
    def why_lost(self) -> str:
        return f"red-box ended the session without a status (close code {self.socket.close_code})"

    async def close(self) -> None:
        """Ends what runs in it, too; it may be closed already."""
        self._renewing.cancel()
        await self.socket.close()

    async def _renew(self, token: Token, sent: str | None, renew: Renew) -> None:
        pause = RENEW_S
        while not self.socket.closed:
            await asyncio.sleep(pause)
            pause = RENEW_S
            with suppress(Exception):  # of any kind of token; until there is one, the last one counts
                newest = await token()
                if newest is not None and newest != sent:
                    pause = RENEW_BACKOFF.pause_s(1)
                    await renew(newest)
                    sent, pause = newest, RENEW_S


class JobSession:
    """A command that runs in a job."""

    def __init__(self, socket: RenewedSocket) -> None:
        self._socket = socket

    async def start(self, request: ExecRequest) -> None:
        """Before all else. A red-box of an earlier release knows of no ephemeral containers."""
        left_out = {"ephemeral"} if request.ephemeral is None else None
        with suppress(ClientError, OSError):
            await self._socket.socket.send_str(request.model_dump_json(by_alias=True, exclude=left_out))

    async def send(self, data: bytes) -> None:
        """To the command's stdin; waits while red-box does not read."""
        for start in range(0, len(data), LARGEST_PIECE):
            await self._send(SessionChannel.STDIN, data[start : start + LARGEST_PIECE])

    async def close_input(self) -> None:
        await self._send(SessionChannel.CLOSE, bytes([SessionChannel.STDIN]))

    async def resize(self, size: TerminalSize) -> None:
        await self._send(SessionChannel.RESIZE, b'{"Width":%d,"Height":%d}' % (size.columns, size.rows))

    async def receive(self) -> SessionData | SessionStatus:
        """The next data, at last the status, which a lost connection has, too."""
        while True:
            data = await self._socket.receive()
            if data is None:
                return lost(self._socket.why_lost)
            if data[:1] == bytes([SessionChannel.ERROR]):
                return read_status(data[1:])
            for output in OUTPUTS:
                if data == bytes([SessionChannel.CLOSE, output]):
                    return SessionData(output, b"")
                if data[:1] == bytes([output]) and len(data) > 1:
                    return SessionData(output, data[1:])

    async def close(self) -> None:
        """Ends what runs in it, too; it may be closed already."""
        await self._socket.close()

    async def _send(self, channel: SessionChannel, data: bytes) -> None:
        await self._socket.send(bytes([channel]) + data)


def lost(why: str) -> SessionStatus:
    """The end of a session that has no status of red-box."""
    return SessionStatus(status="Failure", reason=CONNECTION_LOST, message=why)


def read_status(data: bytes) -> SessionStatus:
    try:
        return SessionStatus.model_validate_json(data)
    except ValidationError:
        return lost("the end of the session is not a Status")


async def open_session(client: RedboxClient, key: str, *, attempt: int = 1) -> JobSession:
    """Before its command, which `start` gives it; its caller closes it. Raises RedboxError for a refusal."""
    path = f"/v1/jobs/{quote(key, safe='')}/exec"
    return JobSession(await open_socket(client, path, {"attempt": attempt}, EXEC_PROTOCOL))


async def open_socket(
    client: RedboxClient, path: str, query: Mapping[str, Any], protocol: str
) -> RenewedSocket:
    sent = await client.token()
    opened = await client.open_websocket(path, query, protocol)
    renew = partial(renew_stream, client, upgrade_header(opened, STREAM_HEADER))
    return RenewedSocket(opened, client.token, sent, renew)


async def renew_stream(client: RedboxClient, stream: str, token: str) -> None:
    """Beside the session, in which the token would wait for input that its command does not read."""

    async def newer() -> str:
        return token

    path = f"/v1/streams/{quote(stream, safe='')}/renew"
    async with asyncio.timeout(RENEW_WITHIN_S), client.speaking_for(newer).stream("POST", path, {}):
        pass


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
