"""Connections to ports of a running job, from the client's side: any number of them over one WebSocket.

async with open_forward(client, "train") as forward:
    connection = await forward.connect(8888)
    await connection.send(b"...")
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from urllib.parse import quote

from redbox_api.client import RedboxClient
from redbox_api.sessions.client import (
    RenewedSocket,
    SessionData,
    lost,
    open_socket,
    read_status,
)
from redbox_api.sessions.parts import (
    NUMBER,
    PortChannel,
    PortRequest,
    SessionChannel,
    SessionStatus,
    port_message,
    read_credit,
    read_port_message,
)
from redbox_shared.credit import ReceiveCredit
from redbox_shared.wire import MESSAGE_COST, PORTS_PROTOCOL, PORTS_WINDOW

PORT_PIECE = PORTS_WINDOW // 2 - MESSAGE_COST
"""Of what is sent in one message: it costs what is always granted, at once or a little later."""


class PortConnection:
    """One TCP connection to a port of a job's node."""

    def __init__(self, number: int, socket: RenewedSocket, forget: Callable[[int], object]) -> None:
        """`forget` is called with the number of a connection that is given up: nothing more comes of it."""
        self._number = number
        self._socket = socket
        self._forget = forget
        self._credit = PORTS_WINDOW
        self._received = ReceiveCredit(PORTS_WINDOW)
        self._events: deque[SessionData] = deque()
        self._status: SessionStatus | None = None
        self._changed = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._status is not None

    def take(self, channel: int, data: bytes) -> None:
        """From the forward: what has come of the job; ValueError for nonsense."""
        if channel == PortChannel.FROM_JOB and data:
            if not self._received.receive(MESSAGE_COST + len(data)):
                raise ValueError("more bytes than the credit of its connection")
            self._events.append(SessionData(SessionChannel.STDOUT, data))
        elif channel == PortChannel.CLOSE:
            self._events.append(SessionData(SessionChannel.STDOUT, b""))
        elif channel == PortChannel.CREDIT:
            self._credit += read_credit(data)
        elif channel == PortChannel.STATUS:
            self._status = read_status(data)
        self._changed.set()

    def end(self, status: SessionStatus) -> None:
        self._status = self._status or status
        self._changed.set()

    async def send(self, data: bytes) -> None:
        """To the job; waits while its server does not read. After the end it is dropped."""
        for start in range(0, len(data), PORT_PIECE):
            piece = data[start : start + PORT_PIECE]
            cost = MESSAGE_COST + len(piece)
            while self._credit < cost and self._status is None:
                await self._change()
            if self._status is not None:
                return
            self._credit -= cost
            await self._send(PortChannel.TO_JOB, piece)

    async def close_input(self) -> None:
        await self._send(PortChannel.CLOSE, b"\0")

    async def receive(self) -> SessionData | SessionStatus:
        """The next data, at last the status, which a lost forward has, too."""
        while not self._events:
            if self._status is not None:
                return self._status
            await self._change()
        event = self._events.popleft()
        if event.data and self._status is None:
            granted = self._received.consume(MESSAGE_COST + len(event.data))
            if granted:
                await self._send(PortChannel.CREDIT, NUMBER.pack(granted))
        return event

    async def close(self) -> None:
        """Give it up, if it has not ended."""
        if self._status is None:
            self._forget(self._number)
            self.end(SessionStatus(status="Success"))
            await self._send(PortChannel.CLOSE, b"\1")

    async def _send(self, channel: PortChannel, data: bytes) -> None:
        await self._socket.send(port_message(channel, self._number, data))

    async def _change(self) -> None:
        """Wait for one; of several readers and writers all wait for the same."""
        self._changed.clear()
        await self._changed.wait()


class JobForward:
    """One WebSocket; `failure` is why it has ended, and with it all its connections."""

    def __init__(self, socket: RenewedSocket) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._connections: dict[int, PortConnection] = {}
        self.failure: SessionStatus | None = None
        self._reading = asyncio.create_task(self._read())

    async def connect(self, port: int, node: str | None = None) -> PortConnection:
        """A new connection, whose caller closes it; a port that refuses it is its status."""
        number = next(self._numbers)
        connection = PortConnection(number, self._socket, self._forget)
        if self.failure is not None:
            connection.end(self.failure)
            return connection
        self._connections[number] = connection
        request = PortRequest(port=port, node=node).model_dump_json(exclude_defaults=True)
        await self._socket.send(port_message(PortChannel.OPEN, number, request.encode()))
        return connection

    async def close(self) -> None:
        self._reading.cancel()
        self._end(lost("the forward was closed"))
        await self._socket.close()

    async def _read(self) -> None:
        failure = lost("the forward was interrupted")
        try:
            while (message := await self._socket.receive()) is not None:
                channel, number, data = read_port_message(message)
                if not number:
                    failure = read_status(data)
                    return
                if (connection := self._connections.get(number)) is not None:
                    connection.take(channel, data)
                    if connection.is_over:
                        self._forget(number)
            failure = lost(self._socket.why_lost)
        except ValueError as error:
            failure = lost(f"red-box sent a message that a forward cannot have: {error}")
        finally:
            self._end(failure)

    def _forget(self, number: int) -> None:
        self._connections.pop(number, None)

    def _end(self, failure: SessionStatus) -> None:
        self.failure = self.failure or failure
        for connection in self._connections.values():
            connection.end(self.failure)
        self._connections.clear()


async def begin_forward(
    client: RedboxClient, key: str, *, attempt: int = 1, task: int | None = None
) -> JobForward:
    """Its caller closes it. Raises RedboxError for a refusal."""
    query = {"attempt": attempt} if task is None else {"attempt": attempt, "task": task}
    path = f"/v1/jobs/{quote(key, safe='')}/ports"
    return JobForward(await open_socket(client, path, query, PORTS_PROTOCOL))


@asynccontextmanager
async def open_forward(
    client: RedboxClient, key: str, *, attempt: int = 1, task: int | None = None
) -> AsyncIterator[JobForward]:
    """A forward that ends with the block. Raises RedboxError for a refusal."""
    forward = await begin_forward(client, key, attempt=attempt, task=task)
    try:
        yield forward
    finally:
        await forward.close()
