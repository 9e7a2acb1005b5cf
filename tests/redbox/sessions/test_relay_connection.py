"""What a relay may send, and what becomes of one that sends anything else, or takes nothing."""

from __future__ import annotations

import pytest

from redbox.relay.program import frames
from redbox.sessions.errors import SessionEnded
from redbox.sessions.relay_connection import StreamOutput
from tests.redbox.sessions.fakes import FakePipe, served

STDOUT_CLOSED = b"\1"


async def test_a_stream_is_closed_once() -> None:
    async with served(pipe := FakePipe()) as connection, connection.open({"kind": "port"}) as stream:
        pipe.emit(frames.CLOSE, 1, STDOUT_CLOSED)
        assert await stream.receive() == StreamOutput(1, b"")
        pipe.emit(frames.CLOSE, 1, STDOUT_CLOSED, count=100_000)
        with pytest.raises(SessionEnded, match="closed twice"):
            await stream.receive()
