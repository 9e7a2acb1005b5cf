"""What is asked of a user's agent, and what its errors mean to who reads a log."""

from __future__ import annotations

import asyncio
import errno
from typing import Any, Never, cast

import pytest

from redbox.agents.errors import AgentUnavailable, SystemFault
from redbox.agents.pool import AgentPool
from redbox.domain import UnixUser
from redbox.logs.by_agents import READS_AT_ONCE, AgentFiles
from redbox.logs.sources import NotReadable, NotThere, NotYetShown, OutOfReach

ALICE = UnixUser("alice", 2001)
PATH = "/home/alice/slurm-7.out"


class FailingAgent:
    """Stands for the pool and for the agent: every read ends with an error, once the gate is open."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.gate = asyncio.Event()
        self.under_way = 0

    async def agent(self, *_: Any) -> FailingAgent:
        return self

    async def read(self, *_: Any, **__: Any) -> Never:
        self.under_way += 1
        await self.gate.wait()
        raise self.error


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (SystemFault(errno.ENOENT, "No such file or directory", PATH), NotThere),
        (SystemFault(errno.EAGAIN, "its directory lists it", PATH), NotYetShown),
        (SystemFault(errno.EACCES, "Permission denied", PATH), NotReadable),
        (AgentUnavailable("busy"), OutOfReach),
    ],
)
async def test_an_agents_error_says_whether_to_wait(error: Exception, meaning: type[Exception]) -> None:
    agent = FailingAgent(error)
    agent.gate.set()
    with pytest.raises(meaning) as raised:
        await AgentFiles(cast("AgentPool", agent), ALICE).read(PATH, 0, 10)
    assert raised.type is meaning


async def test_readers_of_many_logs_of_one_user_leave_its_agent_free_for_others() -> None:
    agent = FailingAgent(SystemFault(errno.ENOENT, "No such file or directory", PATH))
    files = AgentFiles(cast("AgentPool", agent), ALICE)
    reads = [asyncio.create_task(files.read(PATH, 0, 10)) for _ in range(3 * READS_AT_ONCE)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert agent.under_way == READS_AT_ONCE
    agent.gate.set()
    outcomes = await asyncio.gather(*reads, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {NotThere}
