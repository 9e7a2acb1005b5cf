"""The start of one job is asked for once, as its user, and of the job of this mark alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redbox.core.workload_manager import JobHandle, WorkloadManagerError
from redbox.slurm.slurm_manager import SlurmManager
from redbox_api.models import ExpectedStart
from tests.redbox.slurm.factories import job
from tests.redbox.slurm.fakes import ALICE, REDBOX, Answer, ScriptedAgents, done, queue

HANDLE = JobHandle("7", "rb1.mark", "name", ALICE)


async def asked(agents: ScriptedAgents) -> ExpectedStart | None:
    return await SlurmManager(agents, REDBOX).expected_start(HANDLE)


async def test_the_start_and_the_nodes_are_those_of_one_squeue_as_the_jobs_user() -> None:
    agents = ScriptedAgents({"squeue": queue(job("7", StartTime="1795257420", SchedNodes="n[1-2]"))})
    starts_at = datetime.fromtimestamp(1795257420, UTC)
    assert await asked(agents) == ExpectedStart(reason="Priority", starts_at=starts_at, nodes="n[1-2]")
    [(user, argv, _, _)] = agents.calls
    assert (user, argv[-1]) == ("alice", "--jobs=7")


@pytest.mark.parametrize(
    "answer",
    [
        queue(job("7", Comment="rb1.other", StartTime="1795257420")),
        queue(job("7", UserID="2002", StartTime="1795257420")),
        queue(job("7", State="RUNNING", StartTime="1795257420")),
        queue(),
        done("", "slurm_load_jobs error: Invalid job id specified\n", 1),
    ],
)
async def test_neither_a_stranger_of_this_id_nor_what_does_not_wait_has_a_start(answer: Answer) -> None:
    assert await asked(ScriptedAgents({"squeue": answer})) is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (done("", "slurm_load_jobs error: Unable to contact slurm controller\n", 1), "Unable to contact"),
        (done("7"), "could not be parsed"),
    ],
)
async def test_no_answer_is_not_taken_for_a_job_that_does_not_wait(answer: Answer, words: str) -> None:
    with pytest.raises(WorkloadManagerError, match=words):
        await asked(ScriptedAgents({"squeue": answer}))
