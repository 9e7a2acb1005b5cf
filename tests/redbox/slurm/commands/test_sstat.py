"""sstat as each release prints it."""

from __future__ import annotations

import pytest

from redbox.core.workload_manager import StepUsage, WorkloadManagerError
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


async def test_the_user_asks_once_for_all_jobs() -> None:
    agents = ScriptedAgents({"sstat": done(SHOWN, "sstat: error: No steps running for job 9")})
    used = await SlurmManager(agents, REDBOX).usage(ALICE, ["9", "7", "8"])
    assert {step.job_id for step in used} == {"7", "8"}
    assert [(user, argv[-1]) for user, argv, _, _ in agents.calls] == [("alice", "--jobs=7,8,9")]


async def test_an_sstat_that_fails_is_a_fault_in_its_words() -> None:
    agents = ScriptedAgents({"sstat": done("", "sstat: fatal: no slurm.conf", code=1)})
    with pytest.raises(WorkloadManagerError, match=r"sstat failed: no slurm\.conf"):
        await SlurmManager(agents, REDBOX).usage(ALICE, ["7"])


async def test_a_task_of_an_array_is_named_as_its_observation_names_it() -> None:
    """sstat has the id that it has as a job: 8.batch is of 7_1, and 7.batch of the task that keeps the id."""
    tasks = {"ArrayJobID": "7", "State": "RUNNING"}
    rows = queue(
        job("8") | tasks | {"ArrayTaskID": "1"},
        job("7") | tasks | {"ArrayTaskID": "2"},
        job("9", State="RUNNING"),
    )
    shown = SHOWN.replace("7.0|", "9.0|").replace("8.extern|", "8.batch|")
    slurm = SlurmManager(ScriptedAgents({"squeue": rows, "sstat": done(shown)}), REDBOX)
    await slurm.poll(users=[ALICE])
    used = await slurm.usage(ALICE, ["7", "9"])
    assert [(step.job_id, step.step) for step in used] == [("7_2", "batch"), ("9", "0"), ("7_1", "batch")]
