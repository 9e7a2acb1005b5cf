"""How relays are started: with Slurm's settings of this site, and not again and again without a pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from redbox.agents.errors import AgentDied
from redbox.agents.pool import AgentPool
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import WorkloadManagerError
from redbox.relay.program_source import relay_source
from redbox.sessions import relays
from redbox.sessions.errors import SessionEnded
from redbox.sessions.relays import RelayKey, RelayPool
from redbox_shared.backoff import Backoff
from tests.redbox.http.harness import eventually
from tests.redbox.sessions.fakes import FakePipe

ENVIRONMENT = {"SLURM_CONF": "/etc/slurm/other.conf"}
ALICE = UnixUser("alice", 2001)
KEY = RelayKey(ALICE, "caller", "7", "rb1.mine", "n1", 1)


class Agents:
    """An agent of which each step fails, as long as `fails`."""

    def __init__(self) -> None:
        self.fails = True
        self.environments: list[Mapping[str, str]] = []

    async def agent(self, user: UnixUser, role: str) -> Agents:
        assert (user, role) == (ALICE, "sessions")
        return self

    @asynccontextmanager
    async def open_step(
        self, argv: Sequence[str], program: bytes, *, job: str, name: str, env: Mapping[str, str]
    ) -> AsyncIterator[Any]:
        assert program == relay_source()
        assert (argv[0], job, name[:4]) == (f"srun for {ALICE.name}", "7", "rbx-")
        self.environments.append(env)
        if self.fails:
            raise AgentDied("no python3 on the node")
        yield FakePipe()


async def step_of(user: UnixUser, job_id: str, node: str, name: str, program: Sequence[str]) -> list[str]:
    assert (job_id, node, name[:4]) == ("7", "n1", "rbx-")
    return [f"srun for {user.name}", *program]


async def same_job(*_: object) -> None:
    """As after each poll."""


async def no_step(*_: object) -> list[str]:
    raise WorkloadManagerError("squeue does not show task 4 as running")


def never_suspended() -> bool:
    return False


@pytest.fixture
def agents() -> Agents:
    return Agents()


def pool_of(agents: Agents, **more: float) -> RelayPool:
    return RelayPool(cast("AgentPool", agents), step_of, same_job, environment=ENVIRONMENT, **more)


@pytest.fixture
async def pool(agents: Agents) -> AsyncIterator[RelayPool]:
    async with pool_of(agents) as pool:
        yield pool


async def refusal(pool: RelayPool) -> str:
    with pytest.raises(SessionEnded) as refused:
        async with pool.relay(KEY, never_suspended):
            pass
    return str(refused.value)


async def test_a_step_has_the_environment_of_slurms_commands(pool: RelayPool, agents: Agents) -> None:
    agents.fails = False
    async with pool.relay(KEY, never_suspended):
        assert agents.environments == [ENVIRONMENT]


async def test_a_step_in_a_component_of_a_het_job_is_one_of_that_job_to_the_agent(agents: Agents) -> None:
    """It takes ids of jobs and of tasks."""
    agents.fails = False
    asked: list[str] = []

    async def step_of_component(user: UnixUser, job_id: str, *_: object) -> list[str]:
        asked.append(job_id)
        return [f"srun for {user.name}"]

    async with (
        RelayPool(cast("AgentPool", agents), step_of_component, same_job, environment=ENVIRONMENT) as pool,
        pool.relay(replace(KEY, job_id="7+1"), never_suspended),
    ):
        assert (asked, agents.environments) == (["7+1"], [ENVIRONMENT])


async def test_a_relay_that_fails_again_is_not_a_step_a_second(pool: RelayPool, agents: Agents) -> None:
    for _ in range(2):
        assert "tried again" not in await refusal(pool)
    for _ in range(5):
        assert await refusal(pool) == (
            "The session on node n1 could not begin: no python3 on the node. "
            "It is tried again in 2 s at the earliest."
        )
    assert len(agents.environments) == 2


async def test_a_relay_that_starts_has_failed_for_the_last_time(
    pool: RelayPool, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "PAUSES", Backoff(0.0, 0.0))
    for _ in range(3):
        await refusal(pool)
    agents.fails = False
    async with pool.relay(KEY, never_suspended) as connection:
        assert connection.failure is None
    assert len(agents.environments) == 4


async def test_a_step_that_slurm_cannot_name_is_a_session_that_ends_with_the_reason(agents: Agents) -> None:
    async with RelayPool(cast("AgentPool", agents), no_step, same_job, environment=ENVIRONMENT) as pool:
        assert await refusal(pool) == "No session can begin now: squeue does not show task 4 as running."
    assert not agents.environments


async def test_no_session_begins_in_another_job_that_has_the_id_now(agents: Agents) -> None:
    async def another_job(user: UnixUser, job_id: str, mark: str) -> None:
        assert (user, job_id, mark) == (ALICE, "7", "rb1.mine")
        raise WorkloadManagerError("job 7 of Slurm is not this job any more")

    agents.fails = False
    async with RelayPool(cast("AgentPool", agents), step_of, another_job, environment=ENVIRONMENT) as pool:
        why = "No session can begin now: job 7 of Slurm is not this job any more."
        for _ in range(2):
            assert await refusal(pool) == why
        assert await refusal(pool) == f"{why} It is tried again in 2 s at the earliest."
    assert len(agents.environments) == 2


async def test_a_check_that_fails_otherwise_has_pauses_too(agents: Agents) -> None:
    async def defective(*_: object) -> None:
        raise LookupError("a defect")

    agents.fails = False
    async with RelayPool(cast("AgentPool", agents), step_of, defective, environment=ENVIRONMENT) as pool:
        for _ in range(5):
            assert (await refusal(pool)).startswith("Internal error of red-box; see its log.")
    assert len(agents.environments) == 2


async def test_a_session_that_begins_as_its_relay_is_ended_gets_another(agents: Agents) -> None:
    agents.fails = False
    async with pool_of(agents, linger_s=0) as pool:
        async with pool.relay(KEY, never_suspended) as first:
            pass
        for _ in range(2):  # its time is over, and it has not had a turn since
            await asyncio.sleep(0)
        assert first.failure is None
        async with pool.relay(KEY, never_suspended) as second:
            assert second is not first
            async with asyncio.timeout(60):
                await first._failed.wait()
            assert second.failure is None
            assert pool.count == 1


async def test_a_relay_that_was_expected_in_vain_ends(agents: Agents) -> None:
    agents.fails = False
    async with pool_of(agents, linger_s=0) as pool:
        pool.expect(KEY, never_suspended)
        assert pool.count == 1
        await eventually(lambda: not pool.count)


async def test_a_session_uses_the_relay_that_was_expected(pool: RelayPool, agents: Agents) -> None:
    agents.fails = False
    pool.expect(KEY, never_suspended)
    pool.expect(KEY, never_suspended)
    async with pool.relay(KEY, never_suspended):
        pool.expect(KEY, never_suspended)
        assert pool.count == 1
    assert len(agents.environments) == 1


async def test_a_relay_that_failed_is_not_started_for_what_may_come(pool: RelayPool, agents: Agents) -> None:
    await refusal(pool)
    pool.expect(KEY, never_suspended)
    assert pool.count == 0
    assert len(agents.environments) == 1
