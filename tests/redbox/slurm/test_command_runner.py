"""How much a command may answer: what comes from an agent is what its user decides."""

from __future__ import annotations

import errno
import os
import pwd

import pytest

from redbox.agents.protocol.answers import CommandResult
from redbox.core.clock import SystemClock
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import WorkloadManagerError
from redbox.slurm.command_runner import OUTPUT_LIMIT, USER_LIMIT, USER_LIMITS, CommandRunner
from redbox.slurm.own_account_commands import OwnAccountCommands
from redbox.slurm.settings import SlurmSettings
from tests.redbox.slurm.fakes import ScriptedAgents

OBSERVER, ALICE = UnixUser("redbox", 900), UnixUser("alice", 2001)


@pytest.mark.parametrize(
    ("user", "command", "limit"),
    [
        (OBSERVER, "squeue", OUTPUT_LIMIT),
        (ALICE, "squeue", USER_LIMITS["squeue"]),
        (ALICE, "sacct", USER_LIMITS["sacct"]),
        (ALICE, "sstat", USER_LIMITS["sstat"]),
        (ALICE, "scancel", USER_LIMIT),
    ],
)
async def test_a_users_agent_may_answer_little_and_the_observers_much(
    user: UnixUser, command: str, limit: int
) -> None:
    agents = ScriptedAgents({command: CommandResult(0, b"", b"", 0.1, truncated=True)})
    with pytest.raises(WorkloadManagerError, match=f"{command} wrote more than {limit} bytes"):
        await CommandRunner(agents, OBSERVER, SlurmSettings(), SystemClock()).complete(user, [command])
    assert agents.limits == [limit]


async def test_where_this_host_has_no_process_left_slurm_gives_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that a submit is tried again, which has sent nothing."""

    async def run(*_: object, **__: object) -> CommandResult:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(OwnAccountCommands, "run", run)
    own = UnixUser(pwd.getpwuid(os.geteuid()).pw_name, os.geteuid())
    runner = CommandRunner(ScriptedAgents(), own, SlurmSettings(), SystemClock())
    with pytest.raises(WorkloadManagerError, match="squeue could not be run: Resource temporarily"):
        await runner.complete(own, ["squeue"])


async def test_an_account_of_the_login_node_with_this_process_uid_is_asked_there() -> None:
    """In a pod red-box's own uid is no account of the login node, and Slurm's commands are not there."""
    other = UnixUser("somebody", os.geteuid())
    agents = ScriptedAgents({"squeue": CommandResult(0, b"there", b"", 0.1)})
    runner = CommandRunner(agents, other, SlurmSettings(), SystemClock())
    assert (await runner.complete(other, ["squeue"])).stdout == b"there"


async def test_variables_for_jobs_that_change_what_slurms_commands_print_are_not_for_red_boxs_own() -> None:
    """SQUEUE_FORMAT would win over the format that red-box gives in SQUEUE_FORMAT2."""
    own = {"SLURM_CONF": "/etc/slurm/hpc1.conf"}
    settings = SlurmSettings(environment={**own, "SQUEUE_FORMAT": "%i", "SACCT_FORMAT": "JobID"})
    agents = ScriptedAgents({"squeue": CommandResult(0, b"", b"", 0.1)})
    await CommandRunner(agents, OBSERVER, settings, SystemClock()).complete(OBSERVER, ["squeue"])
    assert agents.calls[-1][3] == own
