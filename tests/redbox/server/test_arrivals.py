"""Connections that have just arrived: each address has its turn, and a flood is dropped at little cost."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from redbox.callers.connection_limits import ConnectionLimiter
from redbox.server import arrivals
from redbox.server.arrivals import Arrivals
from redbox.server.fair_loop import FairEventLoop
from redbox.server.listeners import BACKLOG, Listener, _peer_name
from tests.redbox.http.fakes import SoundedListener

REQUEST = b"GET / HTTP/1.1\r\nHost: redbox\r\nConnection: close\r\n\r\n"
COMPANIONS = 500


async def ok(scope: Any, receive: Any, send: Any) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def listening(connections: ConnectionLimiter) -> AsyncIterator[tuple[Listener, int]]:
    opened = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    config = uvicorn.Config(ok, log_config=None, access_log=False, lifespan="off")
    listener = SoundedListener(config, opened, connections)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(listener.listen())
        await listener.listens.wait()
        yield listener, opened.getsockname()[1]
        listener.should_exit = True
        await serving


def run_fairly(work: Any) -> None:
    with asyncio.Runner(loop_factory=FairEventLoop) as runner:
        runner.run(work)


def test_all_companions_of_one_address_are_served_though_they_start_together() -> None:
    async def start_all() -> None:
        connections = ConnectionLimiter()
        async with listening(connections) as (_, port):
            opened = [socket.create_connection(("127.0.0.1", port)) for _ in range(COMPANIONS)]
            for each in opened:
                each.sendall(REQUEST)
                each.setblocking(False)  # noqa: FBT003
            loop = asyncio.get_running_loop()
            answers = await asyncio.gather(*(loop.sock_recv(each, 12) for each in opened))
            assert answers == [b"HTTP/1.1 200"] * COMPANIONS
            assert not connections.dropped
            for each in opened:
                each.close()

    run_fairly(start_all())


def test_what_waits_beyond_the_bound_of_its_address_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "WAITING_PER_PEER", 5)

    async def flood() -> None:
        connections = ConnectionLimiter()
        async with listening(connections) as (_, port):
            opened = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
            while not connections.dropped:  # noqa: ASYNC110 (all arrive in one turn)
                await asyncio.sleep(0)
            assert connections.dropped == 15
            for each in opened:
                each.close()

    run_fairly(flood())


def test_where_all_places_are_taken_the_address_with_most_loses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "WAITING", 20)
    with socket.socket() as one:
        waiting = Arrivals()
        for number in range(20):
            assert waiting.add(f"flood {number % 5}", one) is None
        with socket.socket() as of_bob:
            assert waiting.add("bob", of_bob) is one
            for number in range(100):
                assert waiting.add(f"flood {number % 5}", one) is one
            assert len(waiting) == 20
            assert waiting.take("bob") is of_bob
        assert "bob" not in waiting
        for number in range(5):
            while f"flood {number}" in waiting:
                assert waiting.take(f"flood {number}") is one
        assert len(waiting) == 0


def test_an_address_whose_connections_were_all_closed_still_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "WAITING", 1)
    with socket.socket() as first, socket.socket() as second:
        waiting = Arrivals()
        assert waiting.add("alice", first) is None
        assert waiting.add("bob", second) is first
        assert "alice" in waiting
        assert waiting.take("alice") is None
        assert "alice" not in waiting
        assert waiting.take("bob") is second


@pytest.mark.parametrize(
    ("address", "counted_as"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::ffff", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_host_has_one_turn_whatever_its_address(address: str, counted_as: str) -> None:
    with socket.socket() as unused:
        assert _peer_name(unused, (address, 1)) == counted_as
