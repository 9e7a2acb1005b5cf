"""Commands of red-box's own account, run for real."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from redbox.core.domain import UnixUser
from redbox.core.workload_manager import WorkloadManagerError
from redbox.slurm.own_account_commands import OwnAccountCommands
from redbox.slurm.slurm_manager import SlurmManager
from tests.redbox.slurm.fakes import ScriptedAgents


async def test_output_exit_code_and_environment_are_the_commands_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of the server")
    done = await OwnAccountCommands().run(
        ["sh", "-c", "env; echo err >&2; exit 3"], env={"A": "1"}, deadline=60
    )
    assert (done.code, done.stderr, done.timed_out) == (3, b"err\n", False)
    assert b"A=1\n" in done.stdout
    assert b"SECRET" not in done.stdout


async def test_a_command_that_is_not_there_says_so() -> None:
    done = await OwnAccountCommands("/nowhere").run(["squeue"], deadline=60)
    assert done.code == 127
    assert b"squeue: not found in /nowhere" in done.stderr


async def test_on_the_deadline_all_its_processes_end(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 600 & echo $! >{pid_file}; wait"
    while not pid_file.exists() or not pid_file.read_text():  # it may end before its script has begun
        done = await OwnAccountCommands().run(["sh", "-c", script], deadline=2)
        assert done.timed_out
    child = int(pid_file.read_text())
    await until(lambda: not is_running(child))


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():  # noqa: ASYNC110 (other processes set no event)
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_when_its_caller_gives_up_it_ends(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    running = asyncio.create_task(
        OwnAccountCommands().run(["sh", "-c", f"echo $$ >{pid_file}; exec sleep 600"], deadline=600)
    )
    await until(lambda: pid_file.exists() and pid_file.read_text().strip() != "")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_running(int(pid_file.read_text()))


async def test_more_than_the_limit_is_cut_and_said_to_be() -> None:
    done = await OwnAccountCommands().run(
        ["head", "-c", "1000000", "/dev/zero"], deadline=60, output_limit=1000
    )
    assert (len(done.stdout), done.truncated, done.code) == (1000, True, 0)


async def test_it_is_used_where_red_box_runs_as_the_observer() -> None:
    agents = ScriptedAgents()
    manager = SlurmManager(agents, UnixUser(pwd.getpwuid(os.geteuid()).pw_name, os.geteuid()))
    with pytest.raises(WorkloadManagerError, match="scontrol"):  # this machine has no Slurm
        await manager.cluster()
    assert agents.calls == []
