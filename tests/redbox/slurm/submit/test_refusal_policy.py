"""What becomes of the jobs of a user whom sudo or sshd refuses."""

from __future__ import annotations

from dataclasses import replace

from redbox.agents.errors import AgentRefused, UserRefused
from redbox.agents.pool import AgentRole
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import SubmitAccepted, SubmitOutcome, SubmitRejected, SubmitUnavailable
from redbox.slurm.slurm_manager import SlurmManager
from tests.redbox.slurm.fakes import ALICE, REDBOX, ScriptedAgent, ScriptedAgents, SkippingClock, done
from tests.redbox.slurm.submit.test_submitter import MARK, submission


class SudoersAgents(ScriptedAgents):
    """Only alice's may be refused: red-box's own account needs none."""

    refused: AgentRefused | None = None

    async def agent(self, user: UnixUser, role: AgentRole = "commands") -> ScriptedAgent:
        if user == ALICE and self.refused is not None:
            raise self.refused
        return await super().agent(user, role)


async def test_a_user_whom_sudo_refuses_is_refused_once_that_has_lasted() -> None:
    """A directory of users that is away says the same of users who are allowed."""
    refused = UserRefused("the agent of alice did not start: sudo: redbox is not allowed to execute it")
    agents, clock = SudoersAgents({"sbatch": done("7\n")}), SkippingClock()
    agents.refused = refused
    manager = SlurmManager(agents, REDBOX, clock=clock)

    async def after(seconds: float, mark: str = MARK) -> SubmitOutcome:
        clock.ahead += seconds
        return await manager.submit(ALICE, replace(submission(), mark=mark))

    first = await after(0)
    assert isinstance(first, SubmitUnavailable)
    assert "not allowed" in first.detail
    assert isinstance(await after(170), SubmitUnavailable)
    agents.refused = None
    assert isinstance(await after(60), SubmitAccepted)
    agents.refused = refused
    outcomes = [await after(seconds, "rb1.next") for seconds in (0, 170, 20)]
    assert [type(outcome) for outcome in outcomes] == [SubmitUnavailable, SubmitUnavailable, SubmitRejected]
    assert outcomes[-1] == SubmitRejected(refused.detail)
    assert isinstance(await after(3600, "rb1.next"), SubmitUnavailable)  # another outage


async def test_what_no_directory_of_users_decides_is_refused_at_once() -> None:
    agents = SudoersAgents({"sbatch": done("7\n")})
    agents.refused = AgentRefused("this red-box runs as uid 2001 and cannot act for another user, bob")
    manager = SlurmManager(agents, REDBOX, clock=SkippingClock())
    assert await manager.submit(ALICE, submission()) == SubmitRejected(agents.refused.detail)
