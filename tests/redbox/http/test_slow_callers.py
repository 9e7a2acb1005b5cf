"""Callers that are slow, silent or many, at real sockets: they get little, and take nothing from others."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope, Send

from redbox.callers import peers
from redbox.callers.connection_limits import ConnectionLimiter
from redbox.core.domain import Caller
from redbox.http.metrics import ServerMetrics
from redbox.http.middleware import request_middleware
from redbox.http.middleware.caller_budget import bodies_budget
from redbox.http.middleware.request_middleware import PIECE, RequestMiddleware
from redbox.server import listeners
from redbox_api.models import Job
from tests.redbox.http.fakes import SCRIPT
from tests.redbox.http.harness import Stand, eventually, problem, standing

Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]
MORE_THAN_BUFFERS_HOLD = 16 << 20
PUT = b"PUT /v1/jobs/k1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def at_port(stand: Stand, *, tls: bool = True) -> AsyncIterator[Wire]:
    context = ssl.create_default_context(cadata=stand.authority) if tls else None
    reader, writer = await asyncio.open_connection("localhost", stand.port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@asynccontextmanager
async def at_socket(stand: Stand) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_unix_connection(stand.socket)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def all_said(reader: asyncio.StreamReader) -> bytes:
    """Up to the end of the connection, which may be a rude one."""
    received = b""
    async with asyncio.timeout(60):
        try:
            while piece := await reader.read(65536):
                received += piece
        except ConnectionError:
            pass
    return received


async def ask(wire: Wire, path: str = "/v1/whoami", token: str = "") -> bytes:
    reader, writer = wire
    sent = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{sent}\r\n".encode())
    return await reader.readline()


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_middleware, "BODY_GRACE_S", 0.2)


async def test_a_head_without_end_is_refused(stand: Stand) -> None:
    async with at_port(stand) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n" + b"X-More: and more\r\n" * 10_000)
        assert (await all_said(reader)).startswith(b"HTTP/1.1 400")


@pytest.mark.usefixtures("short_grace")
async def test_a_body_that_does_not_come_is_waited_for_no_longer(stand: Stand) -> None:
    async with at_socket(stand) as (reader, writer):
        writer.write(PUT + b'Content-Length: 100\r\n\r\n{"batch"')
        assert b" 408 " in await reader.readline()
        await reader.readuntil(b"send it faster")


@pytest.mark.usefixtures("short_grace")
async def test_a_body_that_drips_is_waited_for_no_longer(stand: Stand) -> None:
    async with at_socket(stand) as (reader, writer):
        writer.write(PUT + b"Content-Length: 100000\r\n\r\n")
        answer = asyncio.create_task(reader.readline())
        while not answer.done():
            writer.write(b" ")
            await asyncio.sleep(0.02)
        assert b" 408 " in await answer


async def test_a_file_that_drips_does_not_appear(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    await stand.writing("k1")
    monkeypatch.setattr(request_middleware, "BODY_GRACE_S", 0.2)
    before = sorted(stand.home.iterdir())
    async with at_socket(stand) as (reader, writer):
        writer.write(b"PUT /v1/jobs/k1/files/in HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nbegun")
        assert b" 408 " in await reader.readline()
    await eventually(lambda: sorted(stand.home.iterdir()) == before)


async def test_a_file_that_is_staged_in_is_one_of_its_users_streams(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    await stand.writing("k1")
    stand.services.streams.per_caller = 0
    answer = await alice.put("/v1/jobs/k1/files/in", content=b"data")
    assert answer.status_code == 429
    assert "streams open" in problem(answer)["detail"]


async def test_the_bodies_that_one_caller_has_under_way_are_bounded_and_are_others_no_burden(
    stand: Stand, bob: httpx.AsyncClient
) -> None:
    budget = stand.services.bodies
    budget.per_caller = 10_000
    head = PUT + b"Content-Length: 9000\r\n\r\n"
    async with at_socket(stand) as (_, first), at_socket(stand) as (reader, second):
        first.write(head + b" " * 8000)
        await eventually(lambda: budget.held == 8000)
        second.write(head + b" " * 8000)
        assert b"429" in await reader.readline()
        assert b"retry-after: 5" in (await reader.readuntil(b"\r\n\r\n")).lower()
        assert (await bob.post("/v1/check", json={"batch": SCRIPT})).status_code == 200
        first.transport.abort()
        await eventually(lambda: not budget.held)
    async with at_socket(stand) as (reader, again):
        again.write(head + b" " * 9000)
        assert b"422" in await reader.readline()
    await eventually(lambda: not budget.held)


async def test_the_bodies_of_all_callers_are_bounded(stand: Stand, bob: httpx.AsyncClient) -> None:
    budget = stand.services.bodies
    budget.in_all = 9000
    async with at_socket(stand) as (_, writer):
        writer.write(PUT + b"Content-Length: 9000\r\n\r\n" + b" " * 8900)
        await eventually(lambda: budget.held == 8900)
        answer = await bob.post("/v1/check", json={"batch": SCRIPT + "#" * 1000})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert problem(answer)["retry"]


async def test_a_file_that_is_staged_in_is_held_by_nobody(stand: Stand, alice: httpx.AsyncClient) -> None:
    await stand.writing("k1")
    stand.services.bodies.per_caller = 1000
    assert (await alice.put("/v1/jobs/k1/files/in", content=bytes(100_000))).status_code == 201


def test_one_of_the_largest_bodies_always_finds_room() -> None:
    for largest in (65_536, 8 << 20, 1 << 30):
        budget = bodies_budget(largest)
        assert largest <= budget.per_caller <= budget.in_all


async def test_the_rest_of_a_request_that_is_answered_is_not_waited_for(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_port(stand) as (reader, writer):
        assert b"401" in await ask((reader, writer))
        monkeypatch.setattr(peers, "HEAD_TIMEOUT_S", 0.2)
        writer.write(PUT + b"Content-Length: 100\r\n\r\n{")
        answer = asyncio.create_task(all_said(reader))
        while not answer.done():
            writer.write(b" ")
            await asyncio.sleep(0.05)
        assert b"HTTP/1.1 401" in await answer


async def test_what_comes_behind_a_body_is_no_header(stand: Stand) -> None:
    async with at_port(stand) as (reader, writer):
        token = stand.tokens["alice"].encode()
        writer.write(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"2\r\n{}\r\n0\r\nAuthorization: Bearer " + token + b"\r\nConnection: close\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")


async def test_who_shakes_no_hands_is_let_go(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "HANDSHAKE_S", 0.2)
    async with at_port(stand, tls=False) as (reader, _):
        assert await all_said(reader) == b""


@pytest.mark.parametrize("tls", [True, False])
async def test_the_stranger_who_came_first_gives_way(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, *, tls: bool
) -> None:
    monkeypatch.setattr(listeners, "WAITS_FOR_PLACE_S", 0.1)
    stand.connections.unauthenticated_per_peer = 3
    async with AsyncExitStack() as stack:
        strangers = [await stack.enter_async_context(at_port(stand, tls=tls)) for _ in range(4)]
        assert await all_said(strangers[0][0]) == b""
        async with stand.by_token("bob") as bob:
            assert (await bob.get("/v1/whoami")).status_code == 200


async def test_clients_of_one_address_that_start_together_do_not_close_each_other(stand: Stand) -> None:
    stand.connections.unauthenticated_per_peer = 3
    token = stand.tokens["bob"]

    async def is_answered() -> bool:
        async with at_port(stand) as wire:
            return b"200" in await ask(wire, "/v1/whoami", token)

    assert all(await asyncio.gather(*(is_answered() for _ in range(20))))
    assert not stand.connections.dropped


async def test_a_caller_who_is_known_gives_way_to_no_stranger(stand: Stand) -> None:
    stand.connections.unauthenticated_per_peer = stand.connections.unauthenticated = 2
    async with AsyncExitStack() as stack:
        authenticated = await stack.enter_async_context(at_port(stand))
        assert b"200" in await ask(authenticated, "/v1/jobs?watch=true", stand.tokens["bob"])
        for _ in range(5):
            await stack.enter_async_context(at_port(stand))
        while b"bookmark" not in await authenticated[0].readline():
            pass


async def test_strangers_at_the_socket_are_counted_by_user_not_with_those_at_the_port(stand: Stand) -> None:
    stand.connections.unauthenticated_per_peer = 2
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(at_socket(stand))
        for _ in range(4):
            await stack.enter_async_context(at_port(stand))
        assert b"200" in await ask(here)


async def test_one_callers_connections_are_bounded(stand: Stand) -> None:
    stand.connections.per_caller = 2
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(at_port(stand)) for _ in range(3)]
        answers = [await ask(wire, token=stand.tokens["bob"]) for wire in wires]
        assert [b"200" in answer for answer in answers] == [True, True, False]
        assert b"429" in answers[2]
        wires[0][1].transport.abort()
        await eventually(lambda: stand.connections._by_caller["bob"] == 1)
        async with at_port(stand) as later:
            assert b"200" in await ask(later, token=stand.tokens["bob"])


async def test_a_connection_that_is_lost_while_its_caller_is_authenticated_counts_no_more(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticate = stand.services.authenticator.authenticate
    asked, lost, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slowly(connection: HTTPConnection) -> Caller:
        asked.set()
        await lost.wait()
        caller = await authenticate(connection)
        answered.set()
        return caller

    monkeypatch.setattr(stand.services.authenticator, "authenticate", slowly)
    async with at_port(stand) as (_, writer):
        sent = f"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stand.tokens['bob']}\r\n\r\n"
        writer.write(sent.encode())
        await asked.wait()
    await eventually(lambda: not stand.connections._unauthenticated)
    lost.set()
    await answered.wait()
    assert not stand.connections._by_caller


@pytest.mark.parametrize("path", ["/v1/jobs/k1/logs/stdout?follow=true", "/v1/jobs/k1/files/big"])
async def test_a_reader_that_takes_nothing_is_cut_off(path: str) -> None:
    async with standing(stall_s=0.2) as stand:
        _, written = await stand.writing("k1", bytes(MORE_THAN_BUFFERS_HOLD))
        written.with_name("big").write_bytes(bytes(MORE_THAN_BUFFERS_HOLD))
        async with at_socket(stand) as (reader, writer):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert b"200" in await reader.readline()
            await eventually(lambda: not stand.services.streams.held)
            await eventually(lambda: not stand.connections._by_caller["alice"])


@pytest.mark.parametrize("at", [at_socket, at_port])
async def test_a_caller_who_does_not_read_its_responses_is_cut_off(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, at: Callable[[Stand], AbstractAsyncContextManager[Wire]]
) -> None:
    """Each would hold them until they are read: a large array takes 4 MB."""
    await stand.writing("k1")
    get = stand.services.jobs.get

    async def get_large(*asked: Any, **more: Any) -> Job:
        job = await get(*asked, **more)
        return job.model_copy(update={"message": "x" * MORE_THAN_BUFFERS_HOLD})

    monkeypatch.setattr(stand.services.jobs, "get", get_large)
    monkeypatch.setattr(request_middleware, "READ_GRACE_S", 0.2)
    monkeypatch.setattr(request_middleware, "MIN_BYTES_PER_S", 1 << 40)
    async with at(stand) as (reader, writer):
        head = f"GET /v1/jobs/k1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stand.tokens['alice']}\r\n\r\n"
        writer.write(head.encode() * 4)
        assert b"200" in await reader.readline()
        await eventually(lambda: not stand.connections._by_caller["alice"])


@pytest.mark.parametrize("size", [2 * PIECE - 1, 2 * PIECE, 2 * PIECE + 1])
async def test_a_response_arrives_whole_by_its_pieces(size: int) -> None:
    sent = list[Message]()
    body = bytes(index % 251 for index in range(size))

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        assert scope["path"] == "/"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    middleware = RequestMiddleware(app, counter=ServerMetrics(), body_limit=1, budget=bodies_budget(1))
    connection = ConnectionLimiter().open("here", lambda: None)
    state = {peers.CONNECTION_KEY: connection}
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "state": state}
    await middleware(scope, receive, send)
    assert b"".join(message.get("body", b"") for message in sent) == body
    assert [message.get("more_body", False) for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
    assert all(len(message.get("body", b"")) <= PIECE for message in sent)
