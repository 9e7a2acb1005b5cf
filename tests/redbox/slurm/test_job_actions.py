"""Acts are bound to id and mark, and read back."""

from __future__ import annotations

from typing import Any

import pytest

from redbox.agents.errors import AgentUnavailable
from redbox.core.workload_manager import ActionResult, JobAction, JobHandle, WorkloadManagerError
from redbox.slurm.slurm_manager import SlurmManager
from tests.redbox.slurm.factories import job
from tests.redbox.slurm.fakes import ALICE, REDBOX, ScriptedAgents, SkippingClock, done, late, queue

HANDLE = JobHandle("7", "rb1.mark", "name", ALICE)
GONE = done("", "slurm_load_jobs error: Invalid job id specified\n", 1)
RUNNING, HELD = job("7", State="RUNNING"), job("7", Reason="JobHeldUser")


async def act(
    agents: ScriptedAgents, what: JobAction = JobAction.CANCEL, handle: JobHandle = HANDLE, **more: Any
) -> ActionResult:
    return await SlurmManager(agents, REDBOX, clock=SkippingClock()).act(handle, what, **more)


async def test_a_cancel_names_user_job_name_and_id_and_looks_what_became_of_it() -> None:
    ended = job("7", State="CANCELLED", exit_code="0:15")
    agents = ScriptedAgents({"squeue": [queue(RUNNING), queue(RUNNING), queue(ended)], "scancel": done()})
    assert await act(agents) == ActionResult(done=True)
    assert agents.called("scancel") == [["scancel", "--user=alice", "--name=name", "7"]]
    assert {user for user, argv, _, _ in agents.calls if argv[0] in ("squeue", "scancel")} == {"alice"}


@pytest.mark.parametrize(
    "stranger", [job("7", Comment="rb1.other"), job("7", UserID="2002"), job("7", Comment="")]
)
@pytest.mark.parametrize("what", list(JobAction))
async def test_a_stranger_is_not_touched(stranger: dict[str, str], what: JobAction) -> None:
    agents = ScriptedAgents({"squeue": queue(stranger)})
    outcome = await act(agents, what, signal="TERM")
    assert (outcome.done, outcome.gone) == (False, True)
    assert not agents.called("scancel")
    assert not agents.called("scontrol hold")


async def test_an_id_that_slurm_does_not_know_is_gone() -> None:
    outcome = await act(ScriptedAgents({"squeue": GONE}))
    assert (outcome.done, outcome.gone) == (False, True)


async def test_a_job_that_has_ended_needs_no_cancel_and_can_do_nothing_else() -> None:
    agents = ScriptedAgents({"squeue": queue(job("7", State="FAILED"))})
    assert (await act(agents)).done
    assert (await act(agents, JobAction.STOP)).done
    held = await act(agents, JobAction.HOLD)
    assert (held.done, held.gone) == (False, False)
    assert not agents.called("scancel")


async def test_a_requeue_of_one_run_touches_no_later_run() -> None:
    second = queue(job("7", State="RUNNING", RestartCnt="1"))
    agents = ScriptedAgents({"squeue": second, "scontrol requeue": done()})
    assert (await act(agents, JobAction.REQUEUE, run=1)).done
    assert not agents.called("scontrol requeue")
    third = queue(job("7", State="PENDING", RestartCnt="2"))
    agents = ScriptedAgents({"squeue": [second, third], "scontrol requeue": done()})
    assert (await act(agents, JobAction.REQUEUE, run=2)).done
    assert agents.called("scontrol requeue") == [["scontrol", "requeue", "7"]]


async def test_a_cancel_that_shows_no_effect_is_not_said_to_be_done() -> None:
    agents = ScriptedAgents({"squeue": queue(RUNNING), "scancel": done()})
    outcome = await act(agents)
    assert (outcome.done, outcome.gone) == (False, False)
    assert "still RUNNING" in outcome.detail


async def test_a_cancelled_job_that_slurm_has_dropped_already_is_cancelled() -> None:
    assert (await act(ScriptedAgents({"squeue": [queue(RUNNING), GONE], "scancel": done()}))).done


async def test_slurms_refusal_is_told_in_its_words() -> None:
    words = "Job is no longer pending execution for job 7\nslurm_suspend error: Job is no longer pending\n"
    agents = ScriptedAgents({"squeue": queue(RUNNING), "scontrol hold": done("", words, 1)})
    outcome = await act(agents, JobAction.HOLD)
    assert not outcome.done
    assert "no longer pending execution" in outcome.detail


@pytest.mark.parametrize(
    "answer", [late(), AgentUnavailable("busy"), done("", "Unable to contact slurm controller", 1)]
)
async def test_where_nobody_answers_nothing_is_known(answer: object) -> None:
    with pytest.raises(WorkloadManagerError):
        await act(ScriptedAgents({"squeue": queue(RUNNING), "scancel": answer}))  # type: ignore[dict-item]


async def test_holding_and_releasing_show_in_the_reason() -> None:
    pending = job("7")
    agents = ScriptedAgents({"squeue": [queue(pending), queue(HELD)], "scontrol hold": done()})
    assert (await act(agents, JobAction.HOLD)).done
    agents = ScriptedAgents(
        {"squeue": [queue(HELD), queue(HELD), queue(pending)], "scontrol release": done()}
    )
    assert (await act(agents, JobAction.RELEASE)).done


async def test_a_requeue_shows_as_waiting_or_as_one_more_restart() -> None:
    for after in (job("7", State="REQUEUED"), job("7", State="RUNNING", RestartCnt="1")):
        agents = ScriptedAgents({"squeue": [queue(RUNNING), queue(after)], "scontrol requeue": done()})
        assert (await act(agents, JobAction.REQUEUE)).done


async def test_a_signal_goes_to_the_script_its_steps_and_their_children() -> None:
    agents = ScriptedAgents({"squeue": queue(RUNNING), "scancel": done()})
    assert (await act(agents, JobAction.SIGNAL, signal="SIGUSR1")).done
    assert agents.called("scancel") == [
        ["scancel", "--signal=USR1", "--full", "--user=alice", "--name=name", "7"]
    ]


async def test_a_pods_runner_alone_is_told_to_stop() -> None:
    agents = ScriptedAgents({"squeue": queue(RUNNING), "scancel": done()})
    assert (await act(agents, JobAction.STOP)).done
    assert agents.called("scancel") == [
        ["scancel", "--signal=TERM", "--batch", "--user=alice", "--name=name", "7"]
    ]


@pytest.mark.parametrize("signal", ["", "USR1 --all", "-9", "0", "SIG"])
async def test_what_is_no_signal_is_refused(signal: str) -> None:
    agents = ScriptedAgents({"squeue": queue(RUNNING)})
    outcome = await act(agents, JobAction.SIGNAL, signal=signal)
    assert (outcome.done, agents.called("scancel")) == (False, [])


async def test_without_a_name_the_id_and_the_user_must_do() -> None:
    agents = ScriptedAgents({"squeue": [queue(RUNNING), GONE], "scancel": done()})
    await act(agents, handle=JobHandle("7", "rb1.mark", "", ALICE))
    assert agents.called("scancel") == [["scancel", "--user=alice", "7"]]


async def test_the_dependencies_of_a_waiting_job_are_replaced_as_its_user() -> None:
    agents = ScriptedAgents({"squeue": queue(job("7")), "scontrol update": done()})
    outcome = await SlurmManager(agents, REDBOX).depend(HANDLE, ["afterok:8", "singleton"])
    assert outcome == ActionResult(done=True)
    update = ["scontrol", "update", "JobId=7", "Dependency=afterok:8,singleton"]
    assert agents.called("scontrol update") == [update]


async def test_the_dependencies_of_a_stranger_are_not_touched() -> None:
    agents = ScriptedAgents({"squeue": queue(job("7", Comment="rb1.other"))})
    outcome = await SlurmManager(agents, REDBOX).depend(HANDLE, ["afterok:8"])
    assert (outcome.done, outcome.gone) == (False, True)
    assert not agents.called("scontrol update")


async def test_one_task_of_an_array_is_cancelled_and_no_other_that_waits_beside_it() -> None:
    """Which scancel does where it is given a user or a name as well."""
    task = job("9", ArrayJobID="7", ArrayTaskID="3", State="RUNNING")
    agents = ScriptedAgents({"squeue": [queue(task), GONE], "scancel": done()})
    handle = JobHandle("7_3", "rb1.mark", "name", ALICE)
    assert await act(agents, JobAction.CANCEL_TASK, handle) == ActionResult(done=True, detail="7_3")
    assert agents.called("scancel") == [["scancel", "7_3"]]


async def test_a_pods_runner_alone_is_told_of_an_update() -> None:
    agents = ScriptedAgents({"squeue": queue(RUNNING), "scancel": done()})
    assert (await act(agents, JobAction.UPDATE)).done
    assert agents.called("scancel") == [
        ["scancel", "--signal=URG", "--batch", "--user=alice", "--name=name", "7"]
    ]


async def test_a_pod_that_waits_reads_its_update_when_it_starts_and_one_that_has_ended_never() -> None:
    agents = ScriptedAgents({"squeue": [queue(job("7", State="PENDING")), queue(job("7", State="FAILED"))]})
    assert (await act(agents, JobAction.UPDATE)).done
    assert not (await act(agents, JobAction.UPDATE)).done
    assert not agents.called("scancel")
