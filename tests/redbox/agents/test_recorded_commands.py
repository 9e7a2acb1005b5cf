"""A submit is never killed, and its outcome can be recalled later, by other servers too."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentDied, RequestFailed, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.agents.program.command_records import CommandRecord, CommandRecordStore, outcome_id
from redbox.agents.protocol.answers import RecordedCommand, RecordedCommandState
from redbox.agents.settings import PoolSettings
from redbox.core.domain import UnixUser
from tests.redbox.agents.harness import LaunchedTransport, run_until_detached, until

NO_WAIT = PoolSettings(leave_s=0.05)


@pytest.fixture
def identity() -> str:
    return f"rb1.{uuid4()}"


@pytest.fixture
def transport(folder: Path) -> Iterator[LaunchedTransport]:
    """Give the agents a state directory, which the account nobody lacks."""
    source = LaunchedTransport().preamble.split(b"\n", 1)[1]
    where = f"return [{str(folder)!r}]".encode()
    source = source.replace(b"return [in_home, runtime] if HOME_FIRST else [runtime, in_home]", where)
    assert where in source
    transport = LaunchedTransport(preamble=b"%d\n%b" % (len(source), source))
    yield transport
    transport.end_all()


@asynccontextmanager
async def another_server(transport: LaunchedTransport, user: UnixUser) -> AsyncIterator[AgentClient]:
    async with AgentPool(transport, NO_WAIT) as pool:
        yield await pool.agent(user)


async def recall_until_ended(agent: AgentClient, identity: str) -> RecordedCommand:
    async def is_over() -> bool:
        return (await agent.recall(identity)).state is not RecordedCommandState.RUNNING

    await until(is_over)
    return await agent.recall(identity)


async def until_heard(agent: AgentClient, identity: str) -> None:
    async def is_heard() -> bool:
        return (await agent.recall(identity)).state is not RecordedCommandState.NOT_RECORDED

    await until(is_heard)


def gate(folder: Path) -> tuple[list[str], Path]:
    """Return a command that says 4711 once the gate, a FIFO, is written to."""
    fifo = folder / "gate"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    return ["/bin/sh", "-c", f"read go <{fifo}; echo 4711; exit 3"], fifo


async def test_a_kept_command_answers_as_any_other_and_is_recalled(agent: AgentClient, identity: str) -> None:
    done = await agent.run(["/bin/sh", "-c", "echo 1; echo 2 >&2; exit 3"], keep=identity, deadline=60)
    assert (done.code, done.stdout, done.stderr) == (3, b"1\n", b"2\n")
    assert (await agent.recall(identity)).completed == done


async def test_what_was_never_begun_is_unheard_of(agent: AgentClient, identity: str) -> None:
    assert (await agent.recall(identity)).state is RecordedCommandState.NOT_RECORDED
    assert (await agent.recall("../../etc/passwd")).state is RecordedCommandState.NOT_RECORDED


async def test_the_deadline_detaches_the_caller_and_the_command_goes_on(
    agent: AgentClient, identity: str, folder: Path
) -> None:
    command, fifo = gate(folder)
    await run_until_detached(agent, command, identity)
    fifo.write_text("go\n")
    kept = await recall_until_ended(agent, identity)
    assert kept.completed
    assert (kept.completed.code, kept.completed.stdout) == (3, b"4711\n")


async def test_it_goes_on_when_its_server_ends_and_another_learns_its_outcome(
    transport: LaunchedTransport, user: UnixUser, identity: str, folder: Path
) -> None:
    command, fifo = gate(folder)
    async with another_server(transport, user) as agent:
        await run_until_detached(agent, command, identity)
    async with another_server(transport, user) as agent:
        assert (await agent.recall(identity)).state is RecordedCommandState.RUNNING
        fifo.write_text("go\n")
        kept = await recall_until_ended(agent, identity)
    assert kept.completed
    assert (kept.completed.code, kept.completed.stdout) == (3, b"4711\n")


async def test_it_goes_on_when_its_agent_is_killed_and_its_end_is_said_to_be_unseen(
    transport: LaunchedTransport, pool: AgentPool, user: UnixUser, identity: str, folder: Path
) -> None:
    command, fifo = gate(folder)
    run = asyncio.create_task((await pool.agent(user)).run(command, keep=identity, deadline=60))
    async with another_server(transport, user) as witness:
        await until_heard(witness, identity)
    os.kill(transport.started[0].pid, 9)
    with pytest.raises(AgentDied) as died:
        await run
    assert not died.value.retry
    agent = await pool.agent(user)
    assert (await agent.recall(identity)).state is RecordedCommandState.RUNNING
    fifo.write_text("go\n")
    assert (await recall_until_ended(agent, identity)).state is RecordedCommandState.LOST


async def test_a_cancelled_caller_does_not_end_it(agent: AgentClient, identity: str, folder: Path) -> None:
    command, fifo = gate(folder)
    task = asyncio.create_task(agent.run(command, keep=identity, deadline=60))
    await until_heard(agent, identity)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    fifo.write_text("go\n")
    kept = await recall_until_ended(agent, identity)
    assert kept.completed
    assert kept.completed.stdout == b"4711\n"


async def test_nothing_kept_runs_twice(agent: AgentClient, identity: str, folder: Path) -> None:
    command = ["/bin/sh", "-c", f"echo x >>{folder}/ran"]
    await agent.run(command, keep=identity, deadline=60)
    with pytest.raises(SystemCallFailed, match="begun before"):
        await agent.run(command, keep=identity, deadline=60)
    assert (folder / "ran").read_text() == "x\n"


async def test_a_kept_command_runs_again_only_in_place_of_the_outcome_that_is_named(
    agent: AgentClient, identity: str, folder: Path
) -> None:
    command = ["/bin/sh", "-c", f"echo x >>{folder}/ran; exit 3"]
    await agent.run(command, keep=identity, deadline=60)
    first = await agent.recall(identity)
    await agent.run(command, keep=identity, deadline=10, replaces=first.outcome_id)
    assert (folder / "ran").read_text() == "x\nx\n"
    for named in (first.outcome_id, "another", None):
        with pytest.raises(SystemCallFailed, match="begun before"):
            await agent.run(command, keep=identity, deadline=10, replaces=named)
    second = await agent.recall(identity)
    assert (second.state, second.completed and second.completed.code) == (RecordedCommandState.ENDED, 3)
    assert second.outcome_id not in (first.outcome_id, None)
    assert (folder / "ran").read_text() == "x\nx\n"


async def test_one_that_is_under_way_is_never_replaced(
    agent: AgentClient, identity: str, folder: Path
) -> None:
    await agent.run(["/bin/false"], keep=identity, deadline=60)
    ended = (await agent.recall(identity)).outcome_id
    command, fifo = gate(folder)
    await run_until_detached(agent, command, identity, replaces=ended)
    running = await agent.recall(identity)
    assert (running.state, running.outcome_id) == (RecordedCommandState.RUNNING, None)
    with pytest.raises(SystemCallFailed, match="begun before"):
        await agent.run(command, keep=identity, deadline=10, replaces=ended)
    fifo.write_text("go\n")
    assert (await recall_until_ended(agent, identity)).state is RecordedCommandState.ENDED


async def test_one_that_could_not_be_started_has_an_outcome_too(agent: AgentClient, identity: str) -> None:
    done = await agent.run(["no-such-tool"], keep=identity, deadline=60)
    assert done.code == 127
    assert b"not found" in done.stderr
    assert (await agent.recall(identity)).completed == done


async def test_records_are_the_users_own(agent: AgentClient, identity: str, folder: Path) -> None:
    await agent.run(["/bin/echo", "id"], keep=identity, deadline=60)
    directory = folder / "redbox-kept"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / identity).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("identity", ["a/b", "..", ".hidden", "x" * 201, "a b", "a\n"])
async def test_an_identity_is_a_plain_name(agent: AgentClient, identity: str, folder: Path) -> None:
    with pytest.raises(RequestFailed, match="letters, digits"):
        await agent.run(["/bin/true"], keep=identity, deadline=60)
    assert list(folder.iterdir()) == []


class TestRecords:
    """The records alone."""

    def begin(self, folder: Path, identity: str = "id") -> tuple[CommandRecordStore, CommandRecord]:
        outcomes = CommandRecordStore([str(folder)])
        return outcomes, outcomes.begin(identity)

    def test_a_directory_that_others_could_have_made_is_not_used(self, tmp_path: Path) -> None:
        (tmp_path / "redbox-kept").mkdir()
        (tmp_path / "redbox-kept").chmod(0o777)
        self.begin(tmp_path)
        assert list((tmp_path / "redbox-kept").iterdir()) == []

    def test_an_outcome_that_others_could_have_written_is_none(self, tmp_path: Path) -> None:
        """It could name a job that is another's, or say that nothing was submitted."""
        outcomes, record = self.begin(tmp_path)
        outcomes.end(record, {"code": 0})
        (tmp_path / "redbox-kept").chmod(0o770)
        assert CommandRecordStore([str(tmp_path)]).recall("id")["state"] == "not recorded"
        (tmp_path / "redbox-kept").rename(tmp_path / "elsewhere")
        (tmp_path / "elsewhere").chmod(0o700)
        (tmp_path / "redbox-kept").symlink_to(tmp_path / "elsewhere")
        assert CommandRecordStore([str(tmp_path)]).recall("id")["state"] == "not recorded"

    def test_a_link_in_the_place_of_the_directory_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        (tmp_path / "redbox-kept").symlink_to(tmp_path / "elsewhere")
        self.begin(tmp_path)
        assert list((tmp_path / "elsewhere").iterdir()) == []

    def test_without_a_directory_the_outcome_is_known_as_long_as_the_agent_lives(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "file").touch()
        outcomes = CommandRecordStore([str(tmp_path / "file" / "x")])
        outcomes.end(outcomes.begin("id"), {"code": 0})
        assert outcomes.recall("id") == {"code": 0, "state": "ended"}

    def test_a_file_server_that_reports_a_full_quota_at_the_end_takes_no_outcome_away(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The command has run: an error here would read as that it could not be run."""
        outcomes, record = self.begin(tmp_path)
        close = os.close

        def close_late(descriptor: int) -> None:
            close(descriptor)
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

        with monkeypatch.context() as patch:
            patch.setattr(os, "close", close_late)
            outcomes.end(record, {"code": 0})
        (tmp_path / "redbox-kept" / "id").write_bytes(b"")
        assert outcomes.recall("id") == {"code": 0, "state": "ended"}
        assert CommandRecordStore([str(tmp_path)]).recall("id")["state"] == "lost"

    def test_a_record_that_was_cut_off_while_it_was_written_is_of_a_lost_command(
        self, tmp_path: Path
    ) -> None:
        outcomes, record = self.begin(tmp_path)
        outcomes.end(record, {"code": 0})
        path = tmp_path / "redbox-kept" / "id"
        whole = path.read_bytes().replace(b'"pid": %d' % os.getpid(), b'"pid": 1')  # who wrote it is gone
        for length in range(1, len(whole)):
            path.write_bytes(whole[:length])
            assert CommandRecordStore([str(tmp_path)]).recall("id")["state"] == "lost"
        path.write_bytes(whole)
        assert CommandRecordStore([str(tmp_path)]).recall("id")["state"] == "ended"

    def test_an_outcome_after_a_line_that_a_full_disk_has_cut_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else every submit of the job, and every look for one under way, fails for a day."""
        outcomes, record = self.begin(tmp_path)
        write = os.write
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:9]))
            record.add({"child": {"boot": "b", "pid": 1, "start": "s"}})
        outcomes.end(record, {"code": 0})
        assert CommandRecordStore([str(tmp_path)]).recall("id") == {"code": 0, "state": "ended"}

    def test_records_of_yesterday_are_forgotten(self, tmp_path: Path) -> None:
        outcomes, record = self.begin(tmp_path, "old")
        outcomes.end(record, {"code": 0})
        os.utime(tmp_path / "redbox-kept" / "old", (0, 0))
        self.begin(tmp_path, "new")
        assert [path.name for path in (tmp_path / "redbox-kept").iterdir()] == ["new"]

    def test_a_name_of_yesterday_can_be_used_again_although_nothing_else_was_begun_since(
        self, tmp_path: Path
    ) -> None:
        outcomes, record = self.begin(tmp_path)
        outcomes.end(record, {"code": 1})
        os.utime(tmp_path / "redbox-kept" / "id", (0, 0))
        self.begin(tmp_path)

    def test_what_others_keep_behind_a_link_is_not_removed(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        (tmp_path / "elsewhere" / "old").touch()
        os.utime(tmp_path / "elsewhere" / "old", (0, 0))
        (tmp_path / "redbox-kept").symlink_to(tmp_path / "elsewhere")
        self.begin(tmp_path)
        assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["old"]

    def test_a_record_gives_way_to_one_agent_only(self, tmp_path: Path) -> None:
        outcomes, record = self.begin(tmp_path)
        outcomes.end(record, {"code": 1})
        named = outcome_id(outcomes.recall("id"))
        other, _ = CommandRecordStore([str(tmp_path)]), outcomes.begin("id", named)
        with pytest.raises(FileExistsError):
            other.begin("id", named)
        assert other.recall("id")["state"] == "running"

    def test_while_one_agent_removes_a_record_no_other_does(self, tmp_path: Path) -> None:
        outcomes, record = self.begin(tmp_path)
        outcomes.end(record, {"code": 1})
        named = outcome_id(outcomes.recall("id"))
        claim = tmp_path / "redbox-kept" / "id~"
        claim.touch()
        with pytest.raises(FileExistsError):
            outcomes.begin("id", named)
        os.utime(claim, (0, 0))  # its agent was killed, a day ago
        CommandRecordStore([str(tmp_path)]).begin("id", named)
        assert [path.name for path in (tmp_path / "redbox-kept").iterdir()] == ["id"]

    def test_a_record_that_could_be_written_nowhere_gives_way_too(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        outcomes = CommandRecordStore([str(tmp_path / "file" / "x")])
        outcomes.end(outcomes.begin("id"), {"code": 1})
        with pytest.raises(FileExistsError):
            outcomes.begin("id", "another")
        outcomes.begin("id", outcome_id(outcomes.recall("id")))
        assert outcomes.recall("id") == {"state": "running"}

    def test_outcomes_that_are_written_nowhere_are_kept_while_many_commands_begin_and_end(
        self, tmp_path: Path
    ) -> None:
        """An error here would leave a submit without an answer."""
        (tmp_path / "file").touch()
        outcomes = CommandRecordStore([str(tmp_path / "file" / "x")])

        def run(number: int) -> None:
            outcomes.end(outcomes.begin(f"id-{number}"), {"code": 0})

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(32) as threads:
                list(threads.map(run, range(1500)))
        finally:
            sys.setswitchinterval(interval)
        assert outcomes.recall("id-1499") == {"code": 0, "state": "ended"}
        assert outcomes.recall("id-0")["state"] == "not recorded"

    def test_records_are_not_looked_through_at_each_submit(self, tmp_path: Path) -> None:
        outcomes, record = self.begin(tmp_path, "old")
        outcomes.end(record, {"code": 0})
        os.utime(tmp_path / "redbox-kept" / "old", (0, 0))
        outcomes.begin("new")
        assert (tmp_path / "redbox-kept" / "old").exists()
