"""Ways to agents that break in ways of their own: one user has no agent, and the pool lives on."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh
import pytest

from redbox.agents.errors import AgentRefused, AgentUnavailable
from redbox.agents.pool import AgentPool
from redbox.agents.program.wire import EVENT, PREFIX, hello_line
from redbox.agents.protocol.connection import AgentProcess
from redbox.agents.transports.process import ChildProcess
from redbox.agents.transports.ssh import LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import SshCredential
from redbox.core.domain import UnixUser
from tests.redbox.agents.harness import LaunchedTransport, until

ALICE = UnixUser("alice", 2001)
HELLO = {"protocol": 2, "uid": 2001, "home": "/", "pid": 1, "boot": "b", "start": ""}


class OneKey:
    """Everybody's key."""

    def __init__(self) -> None:
        self._key = asyncssh.generate_private_key("ssh-ed25519")

    def credential(self, user: UnixUser) -> SshCredential:  # noqa: ARG002
        return SshCredential(self._key)

    jump_credential = credential

    def expires_at(self) -> float | None:
        return None


class Open(asyncssh.SSHServer):
    """Lets everybody in."""

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002
        return False


async def greet_only(process: asyncssh.SSHServerProcess[bytes]) -> None:
    await process.stdin.readexactly(int(await process.stdin.readline()))
    nonce = (await process.stdin.readline()).strip()
    hello = json.dumps(HELLO).encode()
    process.stdout.write(hello_line(nonce) + PREFIX.pack(EVENT, 0, len(hello), 0) + hello)
    await process.stdin.read()


@dataclass
class Way:
    """A port that leads to a login node, until it is reset."""

    known_hosts: Path
    port: int = 0
    to: int = 0
    travellers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.travellers.append(writer)
        there, back = await asyncio.open_connection("127.0.0.1", self.to)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    def reset(self) -> None:
        """As a firewall does: no end, but a reset."""
        for writer in self.travellers:
            taken = writer.get_extra_info("socket")
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def login_node(folder: Path) -> AsyncIterator[Way]:
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    node = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[host_key],
        server_factory=Open,
        process_factory=greet_only,
        encoding=None,
    )
    way = Way(folder / "known_hosts", to=node.sockets[0].getsockname()[1])
    proxy = await asyncio.start_server(way.lead, "127.0.0.1", 0)
    way.port = proxy.sockets[0].getsockname()[1]
    way.known_hosts.write_text(f"[127.0.0.1]:{way.port} {host_key.export_public_key().decode()}")
    try:
        yield way
    finally:
        proxy.close()
        node.close()


def over(way: Way) -> SshTransport:
    return SshTransport(LoginNode("127.0.0.1", way.known_hosts, way.port), OneKey())


async def test_a_connection_that_is_reset_costs_one_agent(tmp_path: Path) -> None:
    async with login_node(tmp_path) as way, AgentPool(over(way)) as pool:
        agent = await pool.agent(ALICE)
        way.reset()
        await until(lambda: not agent.is_alive and pool.state().processes == 0)
        assert (await pool.agent(ALICE)).is_alive


async def test_known_hosts_that_cannot_be_read_refuse_in_words(tmp_path: Path) -> None:
    async with login_node(tmp_path) as way, AgentPool(over(way)) as pool:
        with way.known_hosts.open("a") as file:
            file.write("login.example\n")
        with pytest.raises(AgentRefused, match="known_hosts"):
            await pool.agent(ALICE)
        assert pool.state().processes == 0


class Unlucky(LaunchedTransport):
    """Fails with unexpected exceptions, as often as a test sets."""

    def __init__(self, *, starts: int = 0, waits: int = 0) -> None:
        super().__init__()
        self.starts, self.waits = starts, waits

    async def start(self, user: UnixUser) -> AgentProcess:
        if self.starts:
            self.starts -= 1
            raise KeyError("no start")
        process = await Unseen.start(self.argv(user), preamble=self.preamble)
        process.fails, self.waits = bool(self.waits), max(0, self.waits - 1)
        self.started.append(process)
        return process


class Unseen(ChildProcess):
    """Whose end cannot be waited for."""

    fails = False

    async def wait(self) -> int:
        status = await super().wait()
        if self.fails:
            raise KeyError("no end")
        return status


async def test_a_start_that_fails_as_nobody_thought_is_a_failed_start(user: UnixUser) -> None:
    now, transport = 1000.0, Unlucky(starts=1)
    async with AgentPool(transport, clock=lambda: now) as pool:
        with pytest.raises(AgentUnavailable, match="no start"):
            await pool.agent(user)
        assert pool.state().processes == 0
        now += 60
        assert (await pool.agent(user)).is_alive
    transport.end_all()


async def test_an_end_that_cannot_be_seen_is_an_end(user: UnixUser) -> None:
    transport = Unlucky(waits=1)
    async with AgentPool(transport) as pool:
        agent = await pool.agent(user)
        transport.started[0].kill()
        await until(lambda: not agent.is_alive and pool.state().processes == 0)
        assert (await pool.agent(user)).is_alive
    transport.end_all()
