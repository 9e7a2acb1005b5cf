"""A forward over one WebSocket: any number of connections to ports of a job's nodes, each by its number.

Each direction of each connection has credit of its own: a client, or a server in the job, that does not read
holds back its own connection only. The client opens a connection and names it; red-box ends it by a status.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnect

from redbox.http.answers.session_socket import (
    INVALID,
    SessionSocket,
    document_of,
    logged_defects,
    status_of,
    task_group,
)
from redbox.http.answers.validation_messages import validation_message
from redbox.sessions.errors import SessionEnded
from redbox.sessions.open_session import OpenForward, OpenSession
from redbox.sessions.relay_connection import StreamStatus
from redbox_api.sessions.parts import (
    NUMBER,
    PortChannel,
    PortRequest,
    port_message,
    read_credit,
    read_port_message,
)
from redbox_shared.credit import ReceiveCredit
from redbox_shared.wire import MESSAGE_COST, PORTS_MORE_TO_JOB, PORTS_WINDOW

LONGEST_REQUEST = 4096
MOST_UNANSWERED = 1024
"""Connections of one forward that are open, or whose status its client has not read."""
GRANT_REST_S = 0.05
"""After the last input: a client may wait for any credit up to the window before it sends."""
Write = Callable[[bytes], Awaitable[None]]


class ForwardedConnection:
    """One connection: what has come of its client, and how much its client still takes."""

    def __init__(self, number: int, write: Write, *, is_probe: bool) -> None:
        self._number = number
        self._write = write
        self._input: deque[bytes] = deque()
        self._received = ReceiveCredit(0) if is_probe else ReceiveCredit(PORTS_WINDOW, PORTS_MORE_TO_JOB)
        self._input_ended = False
        self._credit = PORTS_WINDOW
        self._arrival = asyncio.Event()
        self._grant = asyncio.Event()

    # ---- from the client's messages
    def feed(self, data: bytes) -> None:
        if not self._received.receive(MESSAGE_COST + len(data)):
            raise SessionEnded(INVALID, f"More bytes than the credit of connection {self._number}.")
        self._input.append(data)
        self._arrival.set()

    def end_input(self) -> None:
        self._input_ended = True
        self._arrival.set()

    def grant(self, credit: int) -> None:
        self._credit = min(PORTS_WINDOW, self._credit + credit)
        self._grant.set()

    # ---- to and from the job
    async def carry(self, session: OpenSession) -> StreamStatus:
        """Copy both ways until the connection has ended."""
        async with task_group() as start:
            copying = start(self._to_client(session))
            others = [start(self._to_job(session)), start(session.idle.until_idle())]
            done, _ = await asyncio.wait([copying, *others], return_when=asyncio.FIRST_COMPLETED)
            ended = copying if copying in done else done.pop()
        status: StreamStatus = ended.result()
        return status

    async def _to_client(self, session: OpenSession) -> StreamStatus:
        while True:
            event = await session.receive()
            if isinstance(event, StreamStatus):
                return event
            if event.data:
                await self._take_credit(MESSAGE_COST + len(event.data))
                await self._write(port_message(PortChannel.FROM_JOB, self._number, event.data))
            else:
                await self._write(port_message(PortChannel.CLOSE, self._number, b"\1"))

    async def _take_credit(self, cost: int) -> None:
        while self._credit < cost:
            self._grant.clear()
            await self._grant.wait()
        self._credit -= cost

    async def _to_job(self, session: OpenSession) -> StreamStatus:
        await self._send_credit(self._received.take())
        while True:
            while self._input:
                data = self._input.popleft()
                await session.send(data)
                await self._send_credit(self._received.consume(MESSAGE_COST + len(data)))
            if self._input_ended:
                await session.stream.close_input()
                return await asyncio.Future()
            try:
                async with asyncio.timeout(GRANT_REST_S if self._received.consumed else None):
                    await self._arrival.wait()
            except TimeoutError:
                await self._send_credit(self._received.take())
            self._arrival.clear()

    async def _send_credit(self, granted: int) -> None:
        if granted:
            await self._write(port_message(PortChannel.CREDIT, self._number, NUMBER.pack(granted)))


@dataclass
class ForwardSocket(SessionSocket):
    """Carries one forward."""

    _connections: dict[int, ForwardedConnection] = field(default_factory=dict, init=False)
    _tasks: dict[asyncio.Task[None], int] = field(default_factory=dict, init=False)
    status_head: ClassVar[bytes] = port_message(PortChannel.STATUS, 0)

    async def run(self, forward: OpenForward) -> None:
        """Carry connections until the forward has ended, which raises why."""
        try:
            async with task_group() as start:
                endings = [
                    start(self._from_client(forward)),
                    start(forward.job.until_job_ends()),
                    start(self.until_gone()),
                ]
                done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _from_client(self, forward: OpenForward) -> None:
        while True:
            try:
                channel, number, data = read_port_message(await self.next_message())
                self._take(forward, channel, number, data)
            except ValidationError as error:
                raise SessionEnded(INVALID, validation_message(error.errors())[:2000]) from None
            except ValueError as error:
                raise SessionEnded(INVALID, f"{error}.") from None
            await asyncio.sleep(0)  # what is empty, or already there, is taken without a pause

    def _take(self, forward: OpenForward, channel: int, number: int, data: bytes) -> None:
        if channel == PortChannel.OPEN:
            if len(data) > LONGEST_REQUEST:
                raise SessionEnded(
                    INVALID, f"A request for a connection has at most {LONGEST_REQUEST} bytes."
                )
            self._open(forward, number, PortRequest.model_validate_json(data))
        elif (connection := self._connections.get(number)) is not None:
            self._pass_on(connection, channel, number, data)
        # else it has ended, which its client may not have read yet

    def _pass_on(self, connection: ForwardedConnection, channel: int, number: int, data: bytes) -> None:
        match channel:
            case PortChannel.TO_JOB:
                connection.feed(data)
            case PortChannel.CREDIT:
                connection.grant(read_credit(data))
            case PortChannel.CLOSE if data == b"\0":
                connection.end_input()
            case PortChannel.CLOSE if data == b"\1":
                self._abandon(number)
            case _:
                raise SessionEnded(INVALID, f"There is no channel {channel} of a connection to the job.")

    def _open(self, forward: OpenForward, number: int, request: PortRequest) -> None:
        if not number or number in self._connections:
            raise SessionEnded(INVALID, f"Connection {number} is open already, or no number of a connection.")
        if len(self._tasks) >= MOST_UNANSWERED:
            raise SessionEnded(INVALID, f"More than {MOST_UNANSWERED} connections were opened at once.")
        connection = ForwardedConnection(number, self.socket.send_bytes, is_probe=request.probe)
        self._connections[number] = connection
        task = asyncio.create_task(self._serve(forward, number, connection, request))
        self._tasks[task] = number
        task.add_done_callback(self._tasks.pop)

    def _abandon(self, number: int) -> None:
        del self._connections[number]
        for task in [task for task, served in self._tasks.items() if served == number]:
            task.cancel()

    async def _serve(
        self, forward: OpenForward, number: int, connection: ForwardedConnection, request: PortRequest
    ) -> None:
        status: bytes | None = None
        with logged_defects(self.socket.url.path) as errors:
            async with forward.connection(request) as session:
                status = document_of(await connection.carry(session))
        if self._connections.get(number) is connection:
            del self._connections[number]
        if errors:
            status = status_of(errors[0])
        if status is not None:
            with suppress(WebSocketDisconnect, RuntimeError):  # its client has gone
                await self.socket.send_bytes(port_message(PortChannel.STATUS, number, status))
