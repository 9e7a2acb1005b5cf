"""A user who stops agents loses a request each time: the next agent works, and no stopped process stays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentTimeout
from redbox.agents.pool import AgentPool, AgentRole
from redbox.agents.settings import PoolSettings
from redbox.agents.transports.base import Transport
from redbox.agents.transports.process import ChildProcess
from redbox.agents.transports.ssh import LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import KeyDirectory
from tests.redbox.agents.harness import available, until
from tests.redbox.agents.login_host import ALICE, BOB, SERVER, LoginHost, SudoOnLoginHost


class SignalledByRedbox(ChildProcess):
    """With the rights of the server's account: the tests run as root."""

    def _signal(self, number: signal.Signals) -> None:
        if self._popen.poll() is None:
            drop = ("/usr/bin/setpriv", f"--reuid={SERVER.uid}", f"--regid={SERVER.uid}", "--clear-groups")
            argv = (*drop, "--", "/bin/kill", f"-{number:d}", str(self.pid))
            subprocess.run(argv, check=False, stderr=subprocess.DEVNULL)


def by_key(host: LoginHost) -> SshTransport:
    return SshTransport(LoginNode("127.0.0.1", host.known_hosts, host.port), KeyDirectory(host.keys))


ROLES: tuple[AgentRole, ...] = ("commands", "files")
TRANSPORTS: dict[str, Callable[[LoginHost], Transport]] = {"sudo": SudoOnLoginHost, "ssh": by_key}


@pytest.fixture(params=TRANSPORTS)
def transport(
    request: pytest.FixtureRequest, login_host: LoginHost, monkeypatch: pytest.MonkeyPatch
) -> Transport:
    monkeypatch.setattr("redbox.agents.transports.sudo.ChildProcess", SignalledByRedbox)
    monkeypatch.setattr("redbox.agents.protocol.connection.PONG_S", 0.2)
    return TRANSPORTS[request.param](login_host)


def agents_of(uid: int) -> set[int]:
    """Return the user's agents, and the sudo of each."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid == uid and b"python3" in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
    return found


async def stop(agent: AgentClient) -> None:
    """Stop it, and wait until red-box notices."""
    os.kill(agent.hello.pid, signal.SIGSTOP)
    with pytest.raises(AgentTimeout):
        await agent.stat("/", deadline=0.2)
    await until(lambda: not agent.is_alive)


@asynccontextmanager
async def stopped_again_and_again(pid: int) -> AsyncIterator[None]:
    async def keep_stopped() -> None:
        while True:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(0)

    os.kill(pid, signal.SIGSTOP)
    task = asyncio.create_task(keep_stopped())
    try:
        yield
    finally:
        task.cancel()


async def test_the_next_agent_works_and_none_stays(transport: Transport) -> None:
    async with AgentPool(transport) as pool:
        bobs = await pool.agent(BOB)
        for _ in range(4):
            await stop(await available(pool, ALICE))
        await stop(await available(pool, ALICE, "files"))
        agent = await available(pool, ALICE)
        await until(lambda: agents_of(ALICE.uid) == {agent.hello.pid})
        await until(lambda: pool.state().processes == 2)
        assert (await agent.run(["id", "-u"], deadline=60)).stdout == b"%d\n" % ALICE.uid
        assert bobs.is_alive


async def test_an_idle_agent_that_is_stopped_ends_too(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redbox.agents.protocol.connection.END_S", 0.2)
    async with AgentPool(transport, PoolSettings(idle_s=0.3, idle_check_s=0.1)) as pool:
        for role in ROLES:
            os.kill((await pool.agent(ALICE, role)).hello.pid, signal.SIGSTOP)
        await until(lambda: pool.state().processes == 0)
        agent = await pool.agent(ALICE)
        await until(lambda: agents_of(ALICE.uid) <= {agent.hello.pid})


async def test_an_agent_that_is_stopped_again_and_again_is_killed_by_sudo(
    login_host: LoginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redbox.agents.transports.sudo.ChildProcess", SignalledByRedbox)
    monkeypatch.setattr("redbox.agents.protocol.connection.PONG_S", 0.2)
    monkeypatch.setattr("redbox.agents.protocol.connection.END_S", 0.2)
    async with AgentPool(SudoOnLoginHost(login_host)) as pool:
        agent = await pool.agent(ALICE)
        async with stopped_again_and_again(agent.hello.pid):
            with pytest.raises(AgentTimeout):
                await agent.stat("/", deadline=0.2)
            await until(lambda: pool.state().processes == 0)
        assert not agents_of(ALICE.uid)
        assert (await pool.agent(ALICE)).is_alive
