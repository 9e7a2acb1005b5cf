"""Opens sessions in a running job and connections to its ports: WebSockets of red-box, as one caller."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from aiohttp import ClientError, ClientWebSocketResponse, WSMsgType

from redbox_api.client import RedboxClient
from redbox_api.errors import Unreachable
from redbox_api.sessions.contract import (
    EXEC_PROTOCOL,
    OUTPUTS,
    PORTS_PROTOCOL,
    Channel,
    SessionCommand,
    SessionOutput,
    SessionStatus,
    TerminalSize,
)

LARGEST_PIECE = 32 * 1024
"""Of what is sent in one message."""


class JobSession:
    """One WebSocket: a command that runs in a job, or a connection to one of its ports."""

    def __init__(self, websocket: ClientWebSocketResponse[bool]) -> None:
        self._websocket = websocket

    async def start(self, command: SessionCommand) -> None:
        """Before all else, in a session; a connection to a port has no command."""
        try:
            await self._websocket.send_str(command.as_json())
        except (ClientError, OSError) as error:
            raise Unreachable(f"the session's connection broke: {error}") from error

    async def write(self, data: bytes) -> None:
        """To the command's stdin, or to the port; waits while red-box does not read."""
        for begin in range(0, len(data), LARGEST_PIECE):
            await self._send(Channel.STDIN, data[begin : begin + LARGEST_PIECE])

    async def end_input(self) -> None:
        await self._send(Channel.CLOSE, bytes([Channel.STDIN]))

    async def resize(self, size: TerminalSize) -> None:
        document = {"Width": size.columns, "Height": size.rows}
        await self._send(Channel.RESIZE, json.dumps(document).encode())

    async def receive(self) -> SessionOutput | SessionStatus:
        """The next output; a status is the last. Raises Unreachable where there is an end without one."""
        while True:
            message = await self._websocket.receive()
            if message.type is not WSMsgType.BINARY:
                code = self._websocket.close_code
                raise Unreachable(f"red-box ended the session without a status (close code {code})")
            data: bytes = message.data
            channel, content = data[:1], data[1:]
            if channel == bytes([Channel.STATUS]):
                return SessionStatus.read(content)
            for output in OUTPUTS:
                if channel == bytes([output]):
                    return SessionOutput(output, content)
                if data == bytes([Channel.CLOSE, output]):
                    return SessionOutput(output, b"", is_last=True)

    async def close(self) -> None:
        """Ends what runs in it, too; it may be closed already."""
        await self._websocket.close()

    async def _send(self, channel: Channel, content: bytes) -> None:
        try:
            await self._websocket.send_bytes(bytes([channel]) + content)
        except (ClientError, OSError) as error:  # why it ended is what `receive` raises or returns
            raise Unreachable(f"the session's connection broke: {error}") from error


async def open_session(client: RedboxClient, key: str, *, attempt: int = 1) -> JobSession:
    """Before its command: raises what red-box refuses it with, as for any request."""
    path = f"/v1/jobs/{quote(key, safe='')}/exec"
    return JobSession(await client.open_websocket(path, {"attempt": attempt}, EXEC_PROTOCOL))


async def open_port(
    client: RedboxClient, key: str, port: int, *, attempt: int = 1, node: str | None = None
) -> JobSession:
    """One TCP connection to a port of the job's node."""
    path = f"/v1/jobs/{quote(key, safe='')}/ports/{port}"
    query: dict[str, Any] = {"attempt": attempt} | ({"node": node} if node else {})
    return JobSession(await client.open_websocket(path, query, PORTS_PROTOCOL))
