"""`redbox_api`: what the operator and resourced read from something at the address of a SlurmEndpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any

from hypothesis import strategies as st

from redbox_api.client import LogQuery, RedboxClient
from redbox_api.errors import RedboxError
from redbox_api.feed import list_active_jobs
from redbox_api.limits.answer_limits import AnswerLimits
from redbox_api.log_reader import BoundedRetry, follow_log
from redbox_api.requests.sender import Deadlines
from redbox_api.sessions.client import open_exec
from redbox_api.sessions.parts import ExecRequest, SessionStatus
from redbox_shared.wire import GENERATION_HEADER, OFFSET_HEADER, RESTART_HEADER
from tests.companion.websocket_server import server_frame
from tests.fuzz.mutations import Pieces, mutated
from tests.fuzz.target import Play, Target

JOB: dict[str, Any] = {
    "key": "k", "attempt": 1, "owner": {"cluster": "c", "namespace": "n", "account": "a"}, "user": "alice",
    "phase": "Running", "state": "RUNNING", "revision": "e.1",
}  # fmt: skip
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        -1,
        10**30,
        1e308,
        "",
        "\0",
        "\ud800",
        "\u202e",
        [],
        [[]],
        {},
        {"a": 1},
        "9" * 5000,
        "a" * 70_000,
    ]
)
JOBS = st.builds(
    lambda field, value: {**JOB, field: value}, st.sampled_from([*JOB, "tasks", "pod", "array"]), ODD
)
DOCUMENTS = st.one_of(
    JOBS,
    st.builds(lambda jobs, more: {"items": jobs, "revision": "e.1", **more}, st.lists(JOBS, max_size=3),
              st.sampled_from([{}, {"next": None}, {"next": 5}, {"revision": []}])),
    st.builds(lambda kind, job: {"type": kind, "revision": "e.2", "job": job},
              st.sampled_from(["changed", "removed", "bookmark", "error", "", 5]), JOBS),
    st.sampled_from([{"type": "https://redbox.dev/problems/x", "title": "t", "status": 404, "detail": "d"}]),
).map(lambda document: json.dumps(document).encode())  # fmt: skip
BODIES = st.one_of(
    DOCUMENTS,
    st.sampled_from([b"", b"null", b"[" * 5000, b'{"a":' * 5000, b"9" * 5000, b"NaN", b"\xff", b"<html>"]),
    st.binary(max_size=40),
)
STATUSES = st.sampled_from(
    [200, 200, 200, 204, 206, 301, 307, 401, 404, 409, 410, 422, 429, 500, 503, 101, 999]
)
HEADERS = st.lists(
    st.sampled_from(
        ["Content-Type: application/json", "Content-Encoding: gzip", "Retry-After: 9", "Retry-After: -1",
         "Retry-After: " + "9" * 5000, "Location: http://169.254.169.254/", f"{OFFSET_HEADER}: 0",
         f"{OFFSET_HEADER}: " + "9" * 5000, f"{GENERATION_HEADER}: g", f"{RESTART_HEADER}: x",
         "Transfer-Encoding: chunked", "Content-Length: -1", "Content-Length: 99999999999", "Set-Cookie: a=b",
         "Upgrade: websocket", "Connection: Upgrade"]
    ),
    max_size=4,
)  # fmt: skip


@st.composite
def answers(draw: st.DrawFn) -> Pieces:
    body = b"\n".join(draw(st.lists(BODIES, max_size=4)))
    length = [f"Content-Length: {len(body)}"] if draw(st.booleans()) else []
    head = "\r\n".join([f"HTTP/1.1 {draw(STATUSES)} X", *draw(HEADERS), *length, "", ""])
    return [head.encode(), body, draw(st.sampled_from([b"", server_frame(2, b"\3{}"), server_frame(9, b"")]))]


async def ask(client: RedboxClient) -> AsyncIterator[Awaitable[object]]:
    """Everything that the operator asks; one after the other, since each gets the same answer."""
    yield client.get_job("k")
    yield client.cluster()
    yield client.partitions()
    yield client.usage()
    yield client.cancel_job("k")
    yield list_active_jobs(client, lambda _: None)
    yield drained(client.watch_jobs("e.1"))
    yield drained(client.watch_partitions())
    yield drained(follow_log(client, "k", LogQuery(), BoundedRetry(give_up_s=0)))
    yield session(client)


async def drained(items: AsyncIterator[object]) -> None:
    async for _ in items:
        pass


async def session(client: RedboxClient) -> None:
    async with open_exec(client, "k", ExecRequest(command=("true",))) as opened:
        while not isinstance(await opened.receive(), SessionStatus):
            pass


@asynccontextmanager
async def clients() -> AsyncIterator[Play]:
    """A model, or a RedboxError."""
    said: Pieces = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in said:
                writer.write(piece)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]

        async def play(pieces: Pieces) -> None:
            said[:] = pieces
            deadlines = Deadlines(connect=20, answer=20, quiet=20, log_quiet=20)
            limits = AnswerLimits(longest=1 << 20)
            async with RedboxClient(f"http://127.0.0.1:{port}", deadlines=deadlines, limits=limits) as client:
                async for asked in ask(client):
                    with suppress(RedboxError):
                        await asked

        yield play


FINE = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"{}"]
TARGETS = (Target("client-answers", mutated(answers()), clients, FINE, in_ci=60),)
