"""One agent per user and role, replaced when it is dead; a misbehaving user loses only their own agents."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentDied, AgentTimeout, AgentUnavailable
from redbox.agents.pool import AgentPool
from redbox.agents.protocol.connection import PONG_S, AgentProcess
from redbox.agents.settings import PoolSettings
from redbox.agents.transports.bootstrap import bootstrap_preamble
from redbox.agents.transports.process import ChildProcess
from redbox.core.domain import UnixUser
from tests.redbox.agents.harness import LaunchedTransport, available, until

OTHER = UnixUser("daemon", 1)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second account")


def of_any_uid() -> bytes:
    """Return the agent's source with a lower bound that lets a second account be used."""
    source = LaunchedTransport().preamble.split(b"\n", 1)[1]
    source = source.replace(b"DEFAULT_MIN_UID = 1000", b"DEFAULT_MIN_UID = 1")
    return b"%d\n%b" % (len(source), source)


class Unkillable(ChildProcess):
    """As a process of another user's is to the server."""

    def _signal(self, number: signal.Signals) -> None:
        """It may not."""


class UnkillableTransport(LaunchedTransport):
    """Starts what the server may not kill."""

    async def start(self, user: UnixUser) -> AgentProcess:
        self.started.append(await Unkillable.start(self.argv(user), preamble=self.preamble))
        return self.started[-1]


async def test_all_who_ask_at_once_share_one_start(pool: AgentPool, user: UnixUser) -> None:
    agents = await asyncio.gather(*(pool.agent(user) for _ in range(20)))
    assert len({id(agent) for agent in agents}) == 1
    assert pool.state().processes == 1


async def test_files_have_a_process_of_their_own(pool: AgentPool, user: UnixUser) -> None:
    commands, files = await pool.agent(user, "commands"), await pool.agent(user, "files")
    assert commands.hello.pid != files.hello.pid


async def test_a_caller_who_gives_up_does_not_end_the_start(pool: AgentPool, user: UnixUser) -> None:
    impatient = asyncio.create_task(pool.agent(user))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await pool.agent(user)).is_alive
    assert pool.state().processes == 1


async def test_an_agent_that_dies_says_what_may_be_retried_and_is_replaced(
    pool: AgentPool, user: UnixUser
) -> None:
    agent = await pool.agent(user)
    run = asyncio.create_task(agent.run(["/bin/sleep", "60"], deadline=60))
    read = asyncio.create_task(agent.read("/dev/null"))
    await read
    os.kill(agent.hello.pid, signal.SIGKILL)
    with pytest.raises(AgentDied, match="gone during run /bin/sleep") as died:
        await run
    assert not died.value.retry
    with pytest.raises(AgentUnavailable):
        await agent.stat("/")
    again = await pool.agent(user)
    assert (await again.run(["/bin/echo", "back"], deadline=60)).stdout == b"back\n"
    await until(lambda: pool.state().processes == 1)


async def test_what_reads_only_may_be_retried_when_its_agent_dies(pool: AgentPool, user: UnixUser) -> None:
    agent = await pool.agent(user)
    os.kill(agent.hello.pid, signal.SIGSTOP)
    stat = asyncio.create_task(agent.stat("/", deadline=60))
    await asyncio.sleep(0)
    os.kill(agent.hello.pid, signal.SIGKILL)
    with pytest.raises(AgentDied) as died:
        await stat
    assert died.value.retry


async def test_a_stopped_agent_is_silence_then_death_then_another_agent(
    pool: AgentPool, user: UnixUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redbox.agents.protocol.connection.PONG_S", 0.2)
    assert PONG_S > 0.2
    agent = await pool.agent(user)
    os.kill(agent.hello.pid, signal.SIGSTOP)
    with pytest.raises(AgentTimeout, match="no answer within"):
        await agent.stat("/", deadline=0.2)
    await until(lambda: not agent.is_alive)
    assert (await (await pool.agent(user)).stat("/")).kind == "directory"


async def test_one_request_that_hangs_is_no_reason_to_end_the_agent(
    agent: AgentClient, pool: AgentPool, user: UnixUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redbox.agents.agent.GRACE_S", -0.8)
    with pytest.raises(AgentTimeout):
        await agent.run(["/bin/sleep", "60"], deadline=1)
    assert (await agent.run(["/bin/true"], deadline=60)).code == 0
    assert await pool.agent(user) is agent


async def stop(agent: AgentClient) -> None:
    """Stop it, and wait until red-box notices."""
    os.kill(agent.hello.pid, signal.SIGSTOP)
    with pytest.raises(AgentTimeout):
        await agent.stat("/", deadline=0.1)
    await until(lambda: not agent.is_alive)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redbox.agents.protocol.connection.PONG_S", 0.1)


@pytest.mark.usefixtures("soon")
async def test_an_agent_that_the_server_may_not_signal_is_ended_by_the_next_one(user: UnixUser) -> None:
    transport = UnkillableTransport()
    async with AgentPool(transport, PoolSettings(leave_s=0)) as pool:
        for _ in range(5):
            await stop(await available(pool, user))
        agent = await available(pool, user)
        await until(lambda: pool.state().processes == 1)
        assert (await agent.stat("/")).kind == "directory"
    transport.end_all()


@pytest.mark.usefixtures("soon")
async def test_an_agent_that_does_not_leave_is_killed_by_the_next_one(user: UnixUser) -> None:
    usual = bootstrap_preamble().split(b"\n", 1)[1].replace(b"SHUTDOWN_S = 150.0", b"SHUTDOWN_S = 0.1")
    staying = usual.replace(b"self._shut_down()", b"time.sleep(1000)")
    transport = UnkillableTransport(preamble=b"%d\n%b" % (len(staying), staying))
    async with AgentPool(transport, PoolSettings(leave_s=0)) as pool:
        await stop(await pool.agent(user))
        transport.preamble = b"%d\n%b" % (len(usual), usual)
        agent = await pool.agent(user)
        assert await transport.started[0].wait() == -signal.SIGKILL
        assert agent.is_alive
    transport.end_all()


@pytest.mark.usefixtures("soon")
async def test_an_agent_that_does_not_leave_is_killed(
    user: UnixUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redbox.agents.protocol.connection.END_S", 0.1)
    source = bootstrap_preamble().split(b"\n", 1)[1].replace(b"self._shut_down()", b"time.sleep(1000)")
    transport = LaunchedTransport(preamble=b"%d\n%b" % (len(source), source))
    async with AgentPool(transport, PoolSettings(idle_s=0.05, idle_check_s=0.02)) as pool:
        await pool.agent(user)
        assert await transport.started[0].wait() == -signal.SIGKILL
        await until(lambda: pool.state().processes == 0)


@pytest.mark.usefixtures("soon")
async def test_a_request_to_a_stopped_agent_ends_long_before_its_deadline(
    pool: AgentPool, user: UnixUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redbox.agents.protocol.connection.SILENCE_S", 0.2)
    agent = await pool.agent(user)
    assert (await agent.run(["/bin/sleep", "1"], deadline=3600)).code == 0  # silent, and it answers pings
    os.kill(agent.hello.pid, signal.SIGSTOP)
    with pytest.raises(AgentDied, match="did not answer a ping"):
        await agent.run(["/bin/true"], deadline=3600)


@needs_root
@pytest.mark.usefixtures("soon")
async def test_a_user_who_stops_all_agents_has_no_further_one_and_others_do_not_notice(
    user: UnixUser,
) -> None:
    source = of_any_uid().split(b"\n", 1)[1].replace(b"self._shut_down()", b"time.sleep(1000)")
    transport = UnkillableTransport(preamble=b"%d\n%b" % (len(source), source))
    async with AgentPool(transport, PoolSettings(leave_s=0)) as pool:
        other = await pool.agent(OTHER)
        for _ in range(3):
            await stop(await pool.agent(user))
        with pytest.raises(AgentUnavailable, match="nobody has 3 agent processes that have not ended"):
            await pool.agent(user)
        assert (await other.stat("/")).kind == "directory"
        assert (await pool.agent(OTHER, "files")).is_alive
        os.kill(transport.started[1].pid, signal.SIGKILL)
        await until(lambda: pool.state().processes == 4)
        assert (await pool.agent(user)).is_alive
    transport.end_all()


async def test_an_idle_agent_is_let_go_and_its_process_ends(
    transport: LaunchedTransport, user: UnixUser
) -> None:
    async with AgentPool(transport, PoolSettings(idle_s=0.05, idle_check_s=0.02)) as pool:
        first = await pool.agent(user)
        await until(lambda: pool.state().processes == 0)
        assert (await pool.agent(user)).hello.pid != first.hello.pid


async def test_an_agent_that_hears_nothing_leaves_by_itself_and_is_replaced(user: UnixUser) -> None:
    source = LaunchedTransport().preamble.split(b"\n", 1)[1].replace(b"IDLE_S = 900.0", b"IDLE_S = 1.5")
    transport = LaunchedTransport(preamble=b"%d\n%b" % (len(source), source))
    async with AgentPool(transport) as pool:
        agent = await pool.agent(user)
        assert (await agent.run(["/bin/sleep", "2"], deadline=60)).code == 0  # busy is not idle
        await until(lambda: not agent.is_alive and pool.state().processes == 0)
        assert (await pool.agent(user)).hello.pid != agent.hello.pid


async def test_a_busy_agent_is_not_idle(transport: LaunchedTransport, user: UnixUser) -> None:
    async with AgentPool(transport, PoolSettings(idle_s=0.05, idle_check_s=0.02)) as pool:
        agent = await pool.agent(user)
        assert (await agent.run(["/bin/sleep", "0.5"], deadline=60)).code == 0
        assert agent.hello.pid == transport.started[0].pid


@needs_root
async def test_there_are_no_more_agents_than_allowed_and_the_longest_idle_makes_room(
    user: UnixUser,
) -> None:
    transport = LaunchedTransport(preamble=of_any_uid())
    async with AgentPool(transport, PoolSettings(most_agents=1)) as pool:
        run = asyncio.create_task((await pool.agent(user)).run(["/bin/sleep", "0.5"], deadline=60))
        await asyncio.sleep(0)
        with pytest.raises(AgentUnavailable, match="all 1 agents are in use"):
            await pool.agent(OTHER)
        await run
        with pytest.raises(AgentUnavailable):
            await pool.agent(OTHER)
        await until(lambda: pool.state().processes == 0)
        assert (await pool.agent(OTHER)).hello.uid == OTHER.uid


@needs_root
async def test_sessions_leave_agents_to_the_submits_of_others(user: UnixUser) -> None:
    transport = LaunchedTransport(preamble=of_any_uid())
    async with AgentPool(transport, PoolSettings(most_agents=2)) as pool:
        agent = await pool.agent(user, "sessions")
        run = asyncio.create_task(agent.run(["/bin/sleep", "60"], deadline=60))
        await asyncio.sleep(0)
        with pytest.raises(AgentUnavailable, match="all 1 agents for sessions are in use"):
            await pool.agent(OTHER, "sessions")
        assert (await pool.agent(OTHER)).hello.uid == OTHER.uid
        run.cancel()


@needs_root
async def test_an_idle_agent_of_sessions_makes_room_for_another(user: UnixUser) -> None:
    transport = LaunchedTransport(preamble=of_any_uid())
    async with AgentPool(transport, PoolSettings(most_agents=2)) as pool:
        await pool.agent(user, "sessions")
        with pytest.raises(AgentUnavailable, match="for sessions"):
            await pool.agent(OTHER, "sessions")
        await until(lambda: pool.state().processes == 0)
        assert (await pool.agent(OTHER, "sessions")).hello.uid == OTHER.uid


async def test_a_start_that_hangs_has_a_deadline_and_the_next_waits_its_turn(user: UnixUser) -> None:
    now = 1000.0
    transport = LaunchedTransport(preamble=b"100000000\n")  # a source that never ends
    settings = PoolSettings(start_s=0.3, first_backoff_s=60, longest_backoff_s=60)
    async with AgentPool(transport, settings, clock=lambda: now) as pool:
        with pytest.raises(AgentUnavailable, match="sent no hello within"):
            await pool.agent(user)
        with pytest.raises(AgentUnavailable) as waits:
            await pool.agent(user)
        assert waits.value.retry_after == 60
        assert len(transport.started) == 1
        now += 61
        with pytest.raises(AgentUnavailable, match="sent no hello within"):
            await pool.agent(user)
        assert len(transport.started) == 2
        await until(lambda: pool.state().processes == 0)


async def test_why_an_agent_did_not_start_is_said_in_its_own_words(user: UnixUser) -> None:
    source = b"import sys\nsys.stderr.write('no python here\\n')\nsys.exit(3)\n"
    async with AgentPool(LaunchedTransport(preamble=b"%d\n%b" % (len(source), source))) as pool:
        with pytest.raises(AgentUnavailable, match="no python here"):
            await pool.agent(user)


async def test_agents_end_with_the_pool(transport: LaunchedTransport, user: UnixUser) -> None:
    async with AgentPool(transport) as pool:
        agent = await pool.agent(user)
        child = asyncio.create_task(agent.run(["/bin/sleep", "60"], deadline=60))
        await asyncio.sleep(0)
    with pytest.raises(AgentDied):
        await child
    assert await transport.started[0].wait() == 0
    with pytest.raises(AgentUnavailable, match="stopping"):
        await pool.agent(user)


async def test_what_is_raised_beside_a_pool_stays_what_it_is(
    transport: LaunchedTransport, user: UnixUser
) -> None:
    async def raises() -> None:
        async with AgentPool(transport) as pool:
            await pool.agent(user)
            raise KeyError

    with pytest.raises(KeyError):
        await raises()
