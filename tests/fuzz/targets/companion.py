"""The companion's readers: answers over HTTP, and messages of a WebSocket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import strategies as st

from redbox_companion.connection.http_connection import HttpResponse, MalformedResponse
from redbox_companion.redbox_client import AnswerStream, RedboxUnreachable
from redbox_companion.streams.frames import LARGEST_MESSAGE, ProtocolError
from redbox_companion.streams.job_channel import MOST_HELD, JobChannel
from tests.companion.websocket_server import server_frame
from tests.fuzz.mutations import Pieces, mutated, sequences
from tests.fuzz.target import Play, Target

LINES = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.1 100 Continue", b"HTTP/1.1 101 Switching", b"HTTP/1.1 503 No",
     b"HTTP/1.1 204", b"Content-Length: 20", b"Content-Length: " + b"9" * 5000, b"Content-Length: -1",
     b"Content-Length: \xb2", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
     b"Connection: close", b"Retry-After: 9", b"Retry-After: " + b"9" * 5000, b"X: " + b"x" * 70_000, b": ",
     b" folded", b"", b"a", b"ff", b"0", b"f" * 5000, b'{"type": "https://redbox.dev/problems/x"}',
     b"[" * 5000, b'{"phase": "Running", "phase": []}']
)  # fmt: skip
ANSWERS = st.lists(LINES.map(lambda line: line + b"\r\n"), max_size=14)


@asynccontextmanager
async def answers() -> AsyncIterator[Play]:
    """A response, whole or piece by piece, or RedboxUnreachable."""

    async def play(pieces: Pieces) -> None:
        for read in (AnswerStream.whole, drain):
            await sent_to(pieces, partial(read_answer, read))

    yield play


def drain(stream: AnswerStream) -> None:
    while stream.read_some(1000):
        pass


def read_answer(read: Callable[[AnswerStream], object], ours: socket.socket) -> None:
    try:
        response = HttpResponse(ours)
    except (MalformedResponse, ValueError, OSError):  # as `_reaching` expects them
        return
    try:
        read(AnswerStream("https://redbox", response))
    except RedboxUnreachable:
        pass
    finally:
        response.close()


async def sent_to(pieces: Pieces, read: Callable[[socket.socket], None]) -> None:
    """Read in a thread what is sent here, until its end or an error, after which nothing more is taken."""
    ours, theirs = socket.socketpair()

    def read_and_close() -> None:
        with ours:
            read(ours)

    with theirs:
        reading = asyncio.create_task(asyncio.to_thread(read_and_close))
        theirs.settimeout(0)
        try:
            for piece in pieces:
                await asyncio.get_running_loop().sock_sendall(theirs, piece)
            theirs.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        await reading


# ---- WebSockets
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"\3{}", b"\1x", b"", b"x" * 126, b"x" * 65_536, b"\3" + b"[" * 5000]),
)
MESSAGES = st.builds(server_frame, st.sampled_from([0, 1, 2, 3, 8, 9, 10, 15]), CONTENTS)


class Pending(socket.socket):
    """Has what only TLS has: nothing is left in its buffers."""

    def pending(self) -> int:
        return 0


@asynccontextmanager
async def channels() -> AsyncIterator[Play]:
    """Messages of a bounded size, and bounded answers to pings, or ProtocolError."""

    async def play(pieces: Pieces) -> None:
        ours, theirs = socket.socketpair()
        ours = Pending(fileno=ours.detach())
        remote = SimpleNamespace(socket=ours, received=b"", token=lambda: "t", renew=lambda: True)
        channel = JobChannel(cast("Any", remote))
        with theirs:
            try:
                for piece in pieces:
                    for start in range(0, len(piece), 16_384):
                        theirs.sendall(piece[start : start + 16_384])
                        assert all(len(content) <= LARGEST_MESSAGE for _, content in channel.read())
                        assert len(channel.held) <= MOST_HELD + (1 << 20)
                        channel.flush()
            except ProtocolError:
                pass
            finally:
                channel.close(whole=True)

    yield play


OK = [b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n", b"\r\n", b"{}"]
TARGETS = (
    Target("companion-answers", mutated(ANSWERS), answers, OK, in_ci=150),
    Target("companion-messages", sequences(MESSAGES), channels, [server_frame(2, b"\1x")], in_ci=150),
)
