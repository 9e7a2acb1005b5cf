"""sstat as each release prints it."""

from __future__ import annotations

import pytest

from redbox.core.workload_manager import JobHandle, StepUsage, WorkloadManagerError
from redbox.slurm.commands import sstat
from redbox.slurm.slurm_manager import SlurmManager
from tests.redbox.slurm.captured import RELEASES, output
from tests.redbox.slurm.factories import job
from tests.redbox.slurm.fakes import ALICE, REDBOX, ScriptedAgents, done, queue

SHOWN = """\
7.batch|cpu=00:00:01,energy=0,fs/disk=80590437825,mem=5013504,pages=0,vmem=5013504
7.0|cpu=1-00:00:02,energy=0,fs/disk=3479911005,mem=954368,pages=0,vmem=954368
8.extern|cpu=00:00:00,energy=0,mem=0
"""


def test_each_step_has_its_time_and_memory() -> None:
    assert list(sstat.read_usage(SHOWN)) == [
        StepUsage("7", "batch", 1.0, 5013504),
        StepUsage("7", "0", 86402.0, 954368),
        StepUsage("8", "extern", 0.0, 0),
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_a_running_job_is_measured_on_each_release(release: str) -> None:
    (batch,) = sstat.read_usage(output(release, "sstat.txt"))
    assert (batch.step, batch.cpu_s) == ("batch", 0.0)
    assert batch.memory_bytes > 0


@pytest.mark.parametrize(
    "line", ["7.batch|", "7.batch", "", "7.batch|cpu=,mem=", "x.batch|cpu=00:00:01,mem=1"]
)
def test_what_was_not_measured_is_left_out(line: str) -> None:
    assert list(sstat.read_usage(f"{line}\n")) == []


def mine(*ids: str) -> list[JobHandle]:
    return [JobHandle(job_id, f"rb1.{job_id}", "name", ALICE) for job_id in ids]


async def test_the_user_asks_once_for_all_jobs() -> None:
    rows = queue(*(job(job_id, State="RUNNING", Comment=f"rb1.{job_id}") for job_id in "78"))
    shown = done(SHOWN, "sstat: error: No steps running for job 9")
    agents = ScriptedAgents({"sstat": shown, "squeue": rows})
    used = await SlurmManager(agents, REDBOX).usage(ALICE, mine("9", "7", "8"))
    assert {step.job_id for step in used} == {"7", "8"}
    calls = [(user, argv[0], argv[-1]) for user, argv, _, _ in agents.calls]
    assert calls == [("alice", "sstat", "--jobs=7,8,9"), ("alice", "squeue", "--jobs=7,8,9")]


@pytest.mark.parametrize("other", [{"Comment": "rb1.another"}, {"Comment": "rb1.7", "UserID": "2002"}, None])
async def test_a_job_that_has_the_id_since_the_last_poll_is_not_measured(
    other: dict[str, str] | None,
) -> None:
    rows = [
        job("8", State="RUNNING", Comment="rb1.8"),
        *([job("7", State="RUNNING", **other)] if other else ()),
    ]
    agents = ScriptedAgents({"sstat": done(SHOWN), "squeue": queue(*rows)})
    used = await SlurmManager(agents, REDBOX).usage(ALICE, mine("7", "8"))
    assert [step.job_id for step in used] == ["8"]


async def test_an_sstat_that_fails_is_a_fault_in_its_words() -> None:
    agents = ScriptedAgents({"sstat": done("", "sstat: fatal: no slurm.conf", code=1)})
    with pytest.raises(WorkloadManagerError, match=r"sstat failed: no slurm\.conf"):
        await SlurmManager(agents, REDBOX).usage(ALICE, mine("7"))


async def test_a_task_of_an_array_is_named_as_its_observation_names_it() -> None:
    """sstat has the id that it has as a job: 8.batch is of 7_1, and 7.batch of the task that keeps the id."""
    tasks = {"ArrayJobID": "7", "State": "RUNNING", "Comment": "rb1.7"}
    rows = queue(
        job("8") | tasks | {"ArrayTaskID": "1"},
        job("7") | tasks | {"ArrayTaskID": "2"},
        job("9", State="RUNNING", Comment="rb1.9"),
    )
    shown = SHOWN.replace("7.0|", "9.0|").replace("8.extern|", "8.batch|")
    slurm = SlurmManager(ScriptedAgents({"squeue": rows, "sstat": done(shown)}), REDBOX)
    used = await slurm.usage(ALICE, mine("7", "9"))
    assert [(step.job_id, step.step) for step in used] == [("7_2", "batch"), ("9", "0"), ("7_1", "batch")]
