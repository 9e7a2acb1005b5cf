"""What is asked of a user's agent, and what its errors mean to who reads a log."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import asdict, replace
from typing import Any, cast

import pytest

from redbox.agents.errors import AgentRefused, AgentUnavailable, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import FileAttributes, FileStatus, ReadResult
from redbox.core.domain import UnixUser
from redbox.logs.agent_files import CONCURRENT_READS, MOST_DEVICES, AgentFiles
from redbox.logs.interfaces import (
    LogFileFailing,
    LogFileMissing,
    LogFileNotVisible,
    LogFileStat,
    LogFileUnavailable,
    LogFileUnreadable,
)

ALICE = UnixUser("alice", 2001)
PATH = "/home/alice/slurm-7.out"
FACTS = FileAttributes("file", size=5, device=7, inode=8, modified_ns=9, mode=0o644, uid=2001)


class FailingAgent:
    """Stands for the pool and for the agent: every read ends with an error, once the gate is open."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.gate = asyncio.Event()
        self.under_way = 0

    async def agent(self, *_: Any) -> FailingAgent:
        return self

    async def read(self, *_: Any, **__: Any) -> Any:
        self.under_way += 1
        await self.gate.wait()
        raise self.error


class ReadingAgent(FailingAgent):
    """One that finds a file, on a disk of its own host."""

    async def read(self, *_: Any, **__: Any) -> ReadResult:
        return ReadResult(data=b"bytes", offset=0, same=True, tail="", facts=FACTS)

    async def stat(self, *_: Any, **__: Any) -> FileStatus:
        return FileStatus(**asdict(FACTS), file_system="ext4")


async def test_a_piece_comes_with_what_tells_its_file_from_another() -> None:
    agent = ReadingAgent(AgentUnavailable("never"))
    chunk = await AgentFiles(cast("AgentPool", agent), ALICE).read(PATH, 0, 10)
    assert chunk.stat == LogFileStat(device=7, inode=8, size=5, modified_ns=9, network=False)
    assert (chunk.data, chunk.replaced) == (b"bytes", False)


class ChangingAgent(ReadingAgent):
    """Its user's own program: it names another file system each time."""

    device = 0

    async def read(self, *_: Any, **__: Any) -> ReadResult:
        self.device += 1
        return replace(await super().read(), facts=replace(FACTS, device=self.device))

    async def stat(self, *_: Any, **__: Any) -> FileStatus:
        return replace(await super().stat(), device=self.device)


async def test_an_agent_cannot_have_ever_more_file_systems_remembered() -> None:
    files = AgentFiles(cast("AgentPool", ChangingAgent(AgentUnavailable("never"))), ALICE)
    for _ in range(10 * MOST_DEVICES):
        assert not (await files.read(PATH, 0, 10)).stat.network
    assert len(files._is_network) <= MOST_DEVICES


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (SystemCallFailed(errno.ENOENT, "No such file or directory", PATH), LogFileMissing),
        (SystemCallFailed(errno.EAGAIN, "its directory lists it", PATH), LogFileNotVisible),
        (SystemCallFailed(errno.EACCES, "Permission denied", PATH), LogFileUnreadable),
        (SystemCallFailed(errno.ESTALE, "Stale file handle", PATH), LogFileUnavailable),
        (SystemCallFailed(errno.EIO, "Input/output error", PATH), LogFileFailing),
        (AgentRefused("redbox may not act as alice"), LogFileFailing),
        (AgentUnavailable("busy"), LogFileUnavailable),
    ],
)
async def test_an_agents_error_says_whether_to_wait(error: Exception, meaning: type[Exception]) -> None:
    agent = FailingAgent(error)
    agent.gate.set()
    with pytest.raises(meaning) as raised:
        await AgentFiles(cast("AgentPool", agent), ALICE).read(PATH, 0, 10)
    assert raised.type is meaning


async def test_readers_of_many_logs_of_one_user_leave_its_agent_free_for_others() -> None:
    agent = FailingAgent(SystemCallFailed(errno.ENOENT, "No such file or directory", PATH))
    files = AgentFiles(cast("AgentPool", agent), ALICE)
    reads = [asyncio.create_task(files.read(PATH, 0, 10)) for _ in range(3 * CONCURRENT_READS)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert agent.under_way == CONCURRENT_READS
    agent.gate.set()
    outcomes = await asyncio.gather(*reads, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {LogFileMissing}
