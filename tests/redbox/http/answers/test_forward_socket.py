"""Whatever a client of a forward sends: it is carried, dropped, or the forward ends with one sentence."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from starlette.websockets import WebSocketDisconnect, WebSocketState

from redbox.http.answers.forward_socket import ForwardSocket
from redbox.sessions.errors import SessionEnded
from redbox.sessions.relay_connection import StreamOutput, StreamStatus
from redbox_api.sessions.parts import PortRequest
from redbox_shared.wire import MESSAGE_COST, PORTS_WINDOW

CHANNELS = st.sampled_from([0, 0, 1, 3, 5, 6, 6, 7, 8, 255])
NUMBERS = st.sampled_from([0, 1, 1, 1, 2, 3, 2**32 - 1])
CONTENTS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b'{"port":80}',
            b'{"port":81,"probe":true}',
            b'{"port":0}',
            b"\0",
            b"\1",
            b"\0\0\1\0",
            bytes(60_000),
            b"[" * 9000,
        ]
    ),
)
MESSAGES = st.lists(
    st.one_of(
        st.builds(
            lambda channel, number, content: bytes([channel]) + number.to_bytes(4) + content,
            CHANNELS,
            NUMBERS,
            CONTENTS,
        ),
        st.binary(max_size=6),
    ),
    max_size=40,
)


class ScriptedSocket:
    """Sends these messages, and then waits; what is sent to it is counted."""

    application_state = WebSocketState.CONNECTED
    scope: dict[str, Any] = {}
    url = SimpleNamespace(path="/v1/jobs/k/ports")

    def __init__(self, messages: list[bytes]) -> None:
        self._messages = deque(messages)
        self.sent: list[bytes] = []

    async def receive(self) -> dict[str, Any]:
        if not self._messages:
            for _ in range(200):  # the connections go on meanwhile
                await asyncio.sleep(0)
            raise WebSocketDisconnect(1000)
        return {"type": "websocket.receive", "bytes": self._messages.popleft()}

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)


class EchoSession:
    """A connection whose server sends back what it gets; port 81 never reads."""

    def __init__(self, request: PortRequest) -> None:
        self._silent = request.port == 81
        self._events: asyncio.Queue[StreamOutput | StreamStatus] = asyncio.Queue()
        self.idle = SimpleNamespace(until_idle=self._never)
        self.stream = SimpleNamespace(close_input=self._close)

    async def _never(self) -> None:
        await asyncio.Future()

    async def _close(self) -> None:
        self._events.put_nowait(StreamOutput(1, b""))
        self._events.put_nowait(StreamStatus(0, "", ""))

    async def send(self, data: bytes) -> None:
        if self._silent:
            await asyncio.Future()
        self._events.put_nowait(StreamOutput(1, data))

    async def receive(self) -> StreamOutput | StreamStatus:
        return await self._events.get()


class EchoForward:
    """Any number of connections; the job never ends."""

    def __init__(self) -> None:
        self.open = 0
        self.job = SimpleNamespace(until_job_ends=self._never)

    async def _never(self) -> None:
        await asyncio.Future()

    @asynccontextmanager
    async def connection(self, request: PortRequest) -> AsyncIterator[EchoSession]:
        self.open += 1
        try:
            yield EchoSession(request)
        finally:
            self.open -= 1


async def run(messages: list[bytes]) -> tuple[BaseException, ScriptedSocket, EchoForward]:
    socket, forward = ScriptedSocket(messages), EchoForward()
    wire = ForwardSocket(cast("Any", socket))
    try:
        await wire.run(cast("Any", forward))
    except (SessionEnded, WebSocketDisconnect) as end:
        return end, socket, forward
    raise AssertionError("a forward ended without a reason")


@given(messages=MESSAGES)
async def test_a_forward_ends_with_a_reason_and_leaves_nothing(messages: list[bytes]) -> None:
    end, socket, forward = await run(messages)
    assert forward.open == 0
    for message in socket.sent:
        assert message[0] in {1, 3, 7, 255}
    for number in {message[1:5] for message in socket.sent}:
        cost = sum(MESSAGE_COST + len(m) - 5 for m in socket.sent if (m[0], m[1:5]) == (1, number))
        assert cost <= credit_of(messages, number)
    if isinstance(end, SessionEnded):
        assert end.reason in {"Invalid", "NotAuthorized"}
        assert len(end.message) < 3000


def credit_of(messages: list[bytes], number: bytes) -> int:
    """At most: a window for each connection of this number, and what its client has granted."""
    own = [message for message in messages if message[1:5] == number]
    opened = sum(message[0] == 6 for message in own)
    granted = sum(int.from_bytes(message[5:]) for message in own if message[0] == 7 and len(message) == 9)
    return opened * PORTS_WINDOW + granted


async def test_a_client_that_grants_nothing_gets_one_window() -> None:
    opening, data = b"\6\0\0\0\1" + b'{"port":80}', b"\0\0\0\0\1" + bytes(40_000)
    _, socket, _ = await run([opening, *[data] * 9])
    cost = sum(MESSAGE_COST + len(message) - 5 for message in socket.sent if message[0] == 1)
    assert PORTS_WINDOW - 45_000 < cost <= PORTS_WINDOW


async def test_a_request_for_a_connection_is_no_longer_than_one_is() -> None:
    """A megabyte of unknown keys is 100,000 errors of pydantic, each built before the first is read."""
    keys = ",".join(f'"{number}":1' for number in range(90_000))
    end, _, _ = await run([b"\6\0\0\0\1" + b'{"port":80,' + keys.encode() + b"}"])
    assert isinstance(end, SessionEnded)
    assert end.message == "A request for a connection has at most 4096 bytes."
