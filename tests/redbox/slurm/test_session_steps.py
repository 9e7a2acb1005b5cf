"""The step of a session: in a job by its id, in a task of an array by the id that the task has as a job."""

from __future__ import annotations

import pytest

from redbox.core.workload_manager import WorkloadManagerError
from redbox.slurm.settings import SlurmSettings
from redbox.slurm.slurm_manager import SlurmManager
from tests.redbox.slurm.factories import job
from tests.redbox.slurm.fakes import ALICE, Answer, ScriptedAgents, SkippingClock, done, queue

ARRAY = queue(
    job("7", ArrayJobID="7", ArrayTaskID="2-9"),
    job("8", ArrayJobID="7", ArrayTaskID="0"),
    job("9", ArrayJobID="7", ArrayTaskID="1", State="RUNNING", NodeList="n[1-2]"),
)


REFUSED = done(code=1, stderr="slurm_load_jobs error: Invalid job id specified")


async def step_in(job_id: str, agents: ScriptedAgents, node: str = "n1") -> list[str]:
    manager = SlurmManager(agents, ALICE, SlurmSettings(), clock=SkippingClock())
    return await manager.session_argv(ALICE, job_id, node, "rbx-1", ["relay"])


async def test_a_job_is_not_looked_up() -> None:
    agents = ScriptedAgents({})
    assert "--jobid=7" in await step_in("7", agents)
    assert not agents.calls


async def test_a_step_shares_what_the_job_has_on_one_node_and_does_not_wait() -> None:
    """Each option has its reason: without --overlap it waits, without -u a prompt stays in srun."""
    argv = "srun -Q -u --jobid=7 --overlap -N1 -n1 -w n1 --immediate=10 -J rbx-1 relay"
    assert await step_in("7", ScriptedAgents({})) == argv.split()


async def test_a_component_of_a_het_job_is_named_by_its_leader_whose_id_alone_srun_takes() -> None:
    argv = "srun -Q -u --jobid=7 --overlap -N1 -n1 --het-group=1 -w n3 --immediate=10 -J rbx-1 relay"
    assert await step_in("7+1", ScriptedAgents({}), "n3") == argv.split()


async def test_a_task_is_named_by_its_own_id_as_its_user_sees_it() -> None:
    agents = ScriptedAgents({"squeue": ARRAY})
    assert "--jobid=9" in await step_in("7_1", agents)
    assert [(user, argv[0]) for user, argv, _, _ in agents.calls] == [("alice", "squeue")]


@pytest.mark.parametrize(("asked", "entered"), [("", "n1"), ("n2", "n2")])
async def test_a_task_is_entered_on_its_first_node_or_the_one_that_is_named(asked: str, entered: str) -> None:
    argv = await step_in("7_1", ScriptedAgents({"squeue": ARRAY}), asked)
    assert argv[argv.index("-w") + 1] == entered


async def test_a_node_that_a_task_does_not_have_is_refused_by_its_own_sentence() -> None:
    with pytest.raises(WorkloadManagerError, match="node n3 is not one of the task's nodes: n1, n2"):
        await step_in("7_1", ScriptedAgents({"squeue": ARRAY}), "n3")


@pytest.mark.parametrize("job_id", ["7", "7_1", "7+1"])
async def test_a_job_that_has_its_mark_may_be_entered(job_id: str) -> None:
    rows = queue(job("7", Comment="rb1.mine"), job("9", Comment="rb1.mine", ArrayJobID="7", ArrayTaskID="1"))
    agents = ScriptedAgents({"squeue": rows})
    await SlurmManager(agents, ALICE, SlurmSettings(), clock=SkippingClock()).check_session_job(
        ALICE, job_id, "rb1.mine"
    )


@pytest.mark.parametrize(
    "answer",
    [
        queue(job("7", Comment="rb1.another")),
        queue(job("7", Comment="rb1.mine", UserID="2002")),
        REFUSED,
    ],
)
async def test_another_job_that_slurm_gave_the_id_since_the_last_poll_is_not_entered(answer: Answer) -> None:
    manager = SlurmManager(ScriptedAgents({"squeue": answer}), ALICE, SlurmSettings(), clock=SkippingClock())
    with pytest.raises(WorkloadManagerError, match="job 7 of Slurm is not this job any more"):
        await manager.check_session_job(ALICE, "7", "rb1.mine")


@pytest.mark.parametrize("answer", [ARRAY, REFUSED])
async def test_a_task_that_does_not_run_has_no_step(answer: Answer) -> None:
    with pytest.raises(WorkloadManagerError, match="squeue does not show task 4 as running"):
        await step_in("7_4", ScriptedAgents({"squeue": answer}))
