"""Whatever a session's client sends, and thousands at a time: it is carried, or ends with one sentence."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnect

from redbox.http.answers.command_socket import CommandSocket
from redbox.sessions.errors import SessionEnded
from redbox.sessions.relay_connection import StreamOutput, StreamStatus
from redbox_api.sessions.parts import MAX_MESSAGE, ExecRequest, ResizeMessage, SessionChannel

COUNT = 1000
CHANNELS = st.sampled_from([0, 0, 0, 1, 2, 3, 4, 4, 5, 6, 255, 255])
CONTENTS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b'{"Width":80,"Height":24}',
            b'{"Width":0,"Height":24}',
            b'{"Width":true,"Height":1e3}',
            b'{"Width":' + b"9" * 5000 + b',"Height":1}',
            b"[" * 9000,
            b"\0",
            b"\1",
            b"eof",
            bytes(MAX_MESSAGE - 1),
            bytes(MAX_MESSAGE),
        ]
    ),
)
MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda channel, content: {"bytes": bytes([channel]) + content}, CHANNELS, CONTENTS),
        st.sampled_from([{"bytes": b""}, {"text": "typed"}, {"bytes": None, "text": ""}, {}]),
    ),
    max_size=12,
)
WORDS = st.one_of(st.text(max_size=8), st.sampled_from(["-l", "../..", "\0", "\ud800", "x" * 300]))
REQUESTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["[" * 100_000, "{}", '{"command": ["\\ud800"]}', '{"command": [' + "9" * 5000 + "]}"]),
    st.fixed_dictionaries(
        {"command": st.lists(WORDS, max_size=3)},
        optional={
            "tty": st.sampled_from([True, 1, "yes", None]),
            "container": WORDS,
            "node": WORDS,
            "task": st.integers(),
            "size": st.dictionaries(st.sampled_from(["columns", "rows", "x"]), st.integers(), max_size=3),
            "term": WORDS,
            "user": WORDS,
        },
    ).map(json.dumps),
)


class ScriptedSocket:
    """Sends these messages, and then is gone; what is sent to it is kept."""

    scope: dict[str, Any] = {}

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._messages = deque(messages)
        self.sent: list[bytes] = []

    async def receive(self) -> dict[str, Any]:
        if not self._messages:
            await asyncio.sleep(0)
            raise WebSocketDisconnect(1006)
        return {"type": "websocket.receive", **self._messages.popleft()}

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)


class Cat:
    """A command that prints what it reads, and ends with its input; `eof` ends it by itself."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[StreamOutput | StreamStatus] = asyncio.Queue()
        self.sizes: list[tuple[int, int]] = []
        self.end = ""
        self.job = SimpleNamespace(until_job_ends=self._never)
        self.idle = SimpleNamespace(until_idle=self._never)
        self.stream = SimpleNamespace(close_input=self._close, resize=self._resize)

    async def _never(self) -> None:
        await asyncio.Future()

    async def _close(self) -> None:
        self._events.put_nowait(StreamOutput(1, b""))
        self._events.put_nowait(StreamStatus(0, "", ""))

    async def _resize(self, columns: int, rows: int) -> None:
        self.sizes.append((columns, rows))

    async def send(self, data: bytes) -> None:
        self._events.put_nowait(StreamOutput(2, data))
        if data == b"eof":
            self._events.put_nowait(StreamStatus(None, "Failed", "it was killed"))

    async def receive(self) -> StreamOutput | StreamStatus:
        return await self._events.get()


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


async def test_many_messages_at_once_leave_turns_to_others() -> None:
    socket = FloodingSocket()
    wire = CommandSocket(cast("Any", socket))
    reading = asyncio.create_task(wire._from_client(cast("Any", IdleSession())))
    turns = 0
    while socket.left:
        await asyncio.sleep(0)
        turns += 1
    reading.cancel()
    assert turns >= COUNT // 64


async def end_of(awaited: Awaitable[object]) -> object:
    """What it returns, or the reason that a client may cause; another error is a defect."""
    try:
        return await awaited
    except (SessionEnded, WebSocketDisconnect) as end:
        return end


def sizes_of(messages: list[dict[str, Any]]) -> set[tuple[int, int]]:
    """What the client has asked for: hypothesis finds sizes of its own beside those above."""
    asked = set()
    for message in messages:
        content = message.get("bytes") or b""
        if content[:1] == bytes([SessionChannel.RESIZE]):
            with suppress(ValidationError):
                size = ResizeMessage.model_validate_json(content[1:])
                asked.add((size.columns, size.rows))
    return asked


@given(messages=MESSAGES, terminals=st.sampled_from(["none", "one"]))
async def test_a_session_ends_with_a_reason_and_leaves_nothing(
    messages: list[dict[str, Any]], terminals: str
) -> None:
    socket, session, is_terminal = ScriptedSocket(*messages), Cat(), terminals == "one"
    wire = CommandSocket(cast("Any", socket))
    end = await end_of(wire.run(cast("Any", session), is_terminal=is_terminal))
    if isinstance(end, SessionEnded):
        assert end.reason in {"Invalid", "NotAuthorized"}
        assert 0 < len(end.message) < 3000
    elif isinstance(end, bytes):
        assert json.loads(end)["status"] in {"Success", "Failure"}
        assert session.end in {"exit 0", "Failed: it was killed"}
    assert asyncio.all_tasks() == {asyncio.current_task()}, "each task of the session has ended"
    assert {message[0] for message in socket.sent} <= {1, 2, 255}
    typed = [message["bytes"][1:] for message in messages if (message.get("bytes") or b" ")[0] == 0]
    printed = [message[1:] for message in socket.sent if message[0] == 2]
    assert printed == [data for data in typed if data][: len(printed)]
    assert set(session.sizes) <= (sizes_of(messages) if is_terminal else set())


@given(text=REQUESTS)
async def test_a_first_message_is_a_command_or_one_sentence(text: str) -> None:
    wire = CommandSocket(cast("Any", ScriptedSocket({"text": text})))
    end = await end_of(wire.first_message())
    if isinstance(end, SessionEnded):
        assert end.reason == "Invalid"
        assert 0 < len(end.message) <= 2000
        assert end.message.encode().decode() == end.message
        return
    assert isinstance(end, ExecRequest)
    assert end.command
    assert not any("\0" in word for word in end.command)
    assert "".join(end.command).encode().decode() == "".join(end.command)
    assert not end.node or end.node[0] not in "-."


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({str(number): 1 for number in range(90_000)}, "has 90000 fields"),
        ({"command": [1] * 60_000}, "command.0 must be a valid string"),
        ({"command": [""] * 200_000}, "more than 100000 values"),
    ],
    ids=["unknown fields", "no words", "too many words"],
)
async def test_of_a_first_message_one_error_is_built_at_most(message: dict[str, Any], words: str) -> None:
    wire = CommandSocket(cast("Any", ScriptedSocket({"text": json.dumps(message)})))
    end = await end_of(wire.first_message())
    assert isinstance(end, SessionEnded)
    assert words in end.message
    assert ";" not in end.message
