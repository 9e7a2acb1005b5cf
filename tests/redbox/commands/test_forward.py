"""`redbox forward`: whose connections it accepts on a host of many users, and how they end."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from redbox.commands.sessions import ports
from redbox.commands.sessions.ports import ForwardedConnections
from redbox_api.errors import RedboxError
from redbox_api.sessions.forward import JobForward
from redbox_api.sessions.parts import PortChannel, port_message
from redbox_shared.socket_options import RESET_ON_CLOSE
from tests.redbox.commands.conftest import Run
from tests.redbox.http.harness import eventually

CONNECT = """
import os, socket, sys
host, port, uid, family = sys.argv[1:]
if uid != "-":
    os.setgroups([]); os.setgid(int(uid)); os.setuid(int(uid))
connected = socket.socket(getattr(socket, family)); connected.settimeout(60)
connected.connect((host, int(port)))
assert connected.recv(10) == b""
"""
OTHER = "2001"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account")


class CountedConnections:
    """Stands in for red-box: counts what would be carried to the job."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *_: object, **__: object) -> Any:
        self.count += 1
        raise RedboxError("counted")


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> CountedConnections:
    counted = CountedConnections()
    monkeypatch.setattr(ports, "begin_forward", counted)
    return counted


class StalledJob:
    """Stands in for red-box's WebSocket: in the job nothing is read, so that no credit comes."""

    why_lost = ""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    async def send(self, message: bytes) -> None:
        self.received.append(message)

    async def receive(self) -> bytes:
        await asyncio.Future()
        raise AssertionError

    @property
    def end(self) -> bytes:
        return self.received[-1]


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> StalledJob:
    stalled = StalledJob()

    async def begin(*_: object, **__: object) -> JobForward:
        return JobForward(cast("Any", stalled))

    monkeypatch.setattr(ports, "begin_forward", begin)
    return stalled


GIVEN_UP = port_message(PortChannel.CLOSE, 1, b"\1")


async def fill(port: int) -> socket.socket:
    """A connection whose input has no room any more, neither in the forward nor in the kernel."""
    connected = socket.create_connection(("127.0.0.1", port))
    connected.settimeout(0)
    refused = 0
    while refused < 3:
        try:
            connected.send(bytes(65536))
            refused = 0
        except BlockingIOError:
            refused += 1
            await asyncio.sleep(0.1)
    return connected


@asynccontextmanager
async def forwarding(address: str, **options: Any) -> AsyncIterator[int]:
    connections = ForwardedConnections(cast("Any", None), "k1", 1, None, None, **options)
    async with connections.bound(address, 0, 80) as server:
        await server.start_serving()
        yield server.sockets[0].getsockname()[1]


async def connect(address: str, port: int, uid: str = "-", family: str = "AF_INET") -> None:
    command = (sys.executable, "-c", CONNECT, address, str(port), uid, family)
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0


async def test_own_connections_are_carried(carried: CountedConnections) -> None:
    async with forwarding("127.0.0.1", any_user=False) as port:
        await connect("127.0.0.1", port)
        await connect("::ffff:127.0.0.1", port, family="AF_INET6")
    assert carried.count == 2


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
async def test_own_connections_over_ipv6_are_carried(carried: CountedConnections) -> None:
    async with forwarding("::1", any_user=False) as port:
        await connect("::1", port, family="AF_INET6")
    assert carried.count == 1


@needs_root
async def test_connections_of_other_users_are_closed(
    capsys: pytest.CaptureFixture[str], carried: CountedConnections
) -> None:
    async with forwarding("127.0.0.1", any_user=False) as port:
        await connect("127.0.0.1", port, OTHER)
        await connect("::ffff:127.0.0.1", port, OTHER, family="AF_INET6")
    assert carried.count == 0
    assert f"refused a connection of the user with uid {OTHER}" in capsys.readouterr().err


@needs_root
async def test_connections_of_other_users_are_carried_where_that_is_asked_for(
    carried: CountedConnections,
) -> None:
    async with forwarding("127.0.0.1", any_user=True) as port:
        await connect("127.0.0.1", port, OTHER)
    assert carried.count == 1


async def test_ctrl_c_ends_connections_that_the_job_does_not_read(stalled: StalledJob) -> None:
    async with forwarding("127.0.0.1", any_user=False) as port:
        connected = await fill(port)
    assert stalled.end == GIVEN_UP
    with connected, pytest.raises(ConnectionResetError):
        connected.send(b"more")


async def test_a_connection_that_is_reset_ends_in_a_job_that_does_not_read(stalled: StalledJob) -> None:
    async with forwarding("127.0.0.1", any_user=False) as port:
        with await fill(port) as connected:
            connected.setsockopt(*RESET_ON_CLOSE)
        await eventually(lambda: stalled.end == GIVEN_UP)


async def test_what_came_before_the_end_of_the_input_waits_for_the_job(stalled: StalledJob) -> None:
    async with forwarding("127.0.0.1", any_user=False) as port:
        with await fill(port) as connected:
            connected.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.5)
        assert stalled.end != GIVEN_UP


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
async def test_an_address_that_other_hosts_reach_needs_any_user(redbox: Run, address: str) -> None:
    ended = await redbox("forward", "k1", "0:80", "--address", address)
    assert ended.exit_code == 1
    assert "--any-user" in ended.stderr
    assert not ended.stdout


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("nowhere.invalid", r"\w+"),  # as the resolver of this host says it
        ("a..b", "it is neither a name nor an address"),
        ("192.0.2.9", "Cannot assign requested address"),
    ],
)
async def test_an_address_that_cannot_be_listened_on_is_one_sentence(
    redbox: Run, address: str, why: str
) -> None:
    ended = await redbox("forward", "k1", "0:80", "--address", address)
    assert ended.exit_code == 1
    assert re.fullmatch(f"redbox: cannot listen on port 0 of {re.escape(address)}: {why}.*\n", ended.stderr)
    assert "Unknown error" not in ended.stderr


async def test_a_refusal_comes_before_anything_is_forwarded(redbox: Run) -> None:
    ended = await redbox("forward", "nothing", "0:80")
    assert ended.exit_code == 1
    assert "no such job" in ended.stderr
    assert not ended.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["exec", "train", "--node", "n[1-2]", "--", "true"], "node: "),
        (["shell", "train", "--container", "Main"], "container: "),
        (["exec", "train", "--", "cat", "caf\udce9"], r"'caf\udce9' is not in UTF-8"),
        (["logs", "caf\udce9"], r"'caf\udce9' is not in UTF-8"),
        (["token", "add", "--user", "caf\udce9"], r"'caf\udce9' is not in UTF-8"),
        (["forward", "train", "8888", "--node", "n 1"], "node: "),
    ],
)
async def test_what_cannot_be_sent_is_a_usage_error(redbox: Run, arguments: list[str], sentence: str) -> None:
    done = await redbox(*arguments)
    assert done.exit_code == 2
    assert sentence in " ".join(done.output.split())
