"""Several machines behind one name, and one that is rebooted: what is recorded where, and what that proves.

Each machine has its own processes, boot id and runtime directories; homes are shared or its own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentUnavailable, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import RecordedCommandState
from redbox.agents.settings import PoolSettings
from redbox.agents.transports.ssh import LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import KeyDirectory
from tests.ports import free_port
from tests.redbox.agents.harness import run_until_detached, until
from tests.redbox.agents.login_host import ALICE, LoginHost
from tests.redbox.agents.sshd import sshd

NAME = "login.example"
FIRST, SECOND = "127.0.0.2", "127.0.0.3"
NO_PAUSE = PoolSettings(first_backoff_s=0.0, longest_backoff_s=0.0, leave_s=0.1)


class Machines:
    """Two addresses of one name, each with a machine that is up or off."""

    def __init__(self, host: LoginHost, folder: Path, homes: str) -> None:
        self.host, self.folder, self.homes = host, folder, homes
        self.port = free_port()
        self._up: dict[str, ExitStack] = {}
        node = LoginNode(NAME, folder / "known_hosts", self.port)
        self.transport = SshTransport(node, KeyDirectory(host.keys))

    def power_on(self, address: str) -> None:
        self._up[address] = stack = ExitStack()
        folder = self.folder / address
        stack.enter_context(sshd(self.host, folder, address=address, port=self.port, machine=self.homes))
        with (self.folder / "known_hosts").open("a") as lines:
            lines.write((folder / "known_hosts").read_text())

    def power_off(self, address: str) -> None:
        """As a power cut: each process ends without a word, and what was in memory is gone."""
        self._up.pop(address).close()

    def all_off(self) -> None:
        for address in list(self._up):
            self.power_off(address)

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[AgentClient]:
        async with AgentPool(self.transport, NO_PAUSE) as pool:
            yield await pool.agent(ALICE)


@pytest.fixture
def name_has_two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = socket.getaddrinfo

    def answers(host: str, port: int, *more: Any, **other: Any) -> Any:
        if host != NAME:
            return real(host, port, *more, **other)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in (FIRST, SECOND)]

    monkeypatch.setattr(socket, "getaddrinfo", answers)


@pytest.fixture(params=["shared"])
def machines(
    request: pytest.FixtureRequest,
    login_host: LoginHost,
    tmp_path: Path,
    name_has_two_addresses: None,  # noqa: ARG001
) -> Iterator[Machines]:
    made = Machines(login_host, tmp_path, request.param)
    yield made
    made.all_off()


async def test_after_a_reboot_agents_start_again_and_outcomes_are_found(machines: Machines) -> None:
    machines.power_on(FIRST)
    async with AgentPool(machines.transport, NO_PAUSE) as pool:
        agent = await pool.agent(ALICE)
        await agent.run(["id", "-un"], deadline=20, keep="before-the-reboot")
        machines.power_off(FIRST)
        await until(lambda: not agent.is_alive)
        with pytest.raises(AgentUnavailable, match="no connection to"):
            await pool.agent(ALICE)
        machines.power_on(FIRST)
        recorded = await (await pool.agent(ALICE)).recall("before-the-reboot")
    assert recorded.completed is not None
    assert recorded.completed.stdout == b"alice\n"


async def test_a_submit_that_a_reboot_ended_is_lost_and_not_begun_a_second_time(machines: Machines) -> None:
    """Its outcome is unknown: a job with its mark may be in Slurm, and only a held retry is safe."""
    machines.power_on(FIRST)
    async with machines.agent() as agent:
        await run_until_detached(agent, ["sleep", "600"], "under-way")
        machines.power_off(FIRST)
    machines.power_on(FIRST)
    async with machines.agent() as agent:
        assert (await agent.recall("under-way")).state is RecordedCommandState.LOST
        with pytest.raises(SystemCallFailed, match="begun before"):
            await agent.run(["true"], keep="under-way", deadline=60)


async def test_a_submit_under_way_on_another_machine_is_not_begun_here(machines: Machines) -> None:
    """The way to it is cut, and its processes run on: this machine cannot see them."""
    for address in (FIRST, SECOND):
        machines.power_on(address)
    async with machines.agent() as agent:
        await run_until_detached(agent, ["sleep", "600"], "over-there")
    machines.power_off(FIRST)
    async with machines.agent() as agent:
        assert (await agent.recall("over-there")).state is RecordedCommandState.LOST
        with pytest.raises(SystemCallFailed, match="begun before"):
            await agent.run(["true"], keep="over-there", deadline=60)


@pytest.mark.parametrize("machines", ["own"], indirect=True)
async def test_an_outcome_in_a_home_that_is_not_shared_is_asked_for_where_it_is(machines: Machines) -> None:
    """Until that machine is gone no agent starts elsewhere, where nothing is recorded, and nothing proven."""
    machines.power_on(FIRST)
    async with machines.agent() as agent:
        await agent.run(["id", "-un"], deadline=20, keep="of-the-first")
    machines.power_on(SECOND)
    async with machines.agent() as agent:
        recorded = await agent.recall("of-the-first")
    assert recorded.completed is not None
    machines.power_off(FIRST)
    async with machines.agent() as agent:
        assert (await agent.recall("of-the-first")).state is RecordedCommandState.NOT_RECORDED


async def test_a_machine_that_takes_connections_and_drops_them_is_left_for_another(
    machines: Machines,
) -> None:
    """As one whose sshd has too many of them, or that is shutting down."""
    machines.power_on(SECOND)
    with socket.create_server((FIRST, machines.port)) as broken:
        accepting = asyncio.create_task(drop_connections(broken))
        try:
            async with AgentPool(machines.transport, NO_PAUSE) as pool:
                with pytest.raises(AgentUnavailable, match="drops connections"):
                    await pool.agent(ALICE)
                agent = await pool.agent(ALICE)
                assert (await agent.run(["id", "-un"], deadline=60)).stdout == b"alice\n"
        finally:
            accepting.cancel()


async def drop_connections(listening: socket.socket) -> None:
    listening.setblocking(False)  # noqa: FBT003 (the standard library has no keyword for it)
    while True:
        taken, _ = await asyncio.get_running_loop().sock_accept(listening)
        taken.close()
