"""sacct's numbers of ended jobs: what they used of what they had."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from redbox.agents.protocol.answers import CommandResult
from redbox.core.workload_manager import PastUsage, WorkloadManagerError
from redbox.slurm.commands import ended_usage
from redbox.slurm.slurm_manager import SlurmManager
from redbox.slurm.text.record_format import ParseReport
from redbox.slurm.text.values import read_time
from redbox.slurm.views.past_usages import build_past_usages
from tests.redbox.slurm.captured import RELEASES, output
from tests.redbox.slurm.fakes import ALICE, REDBOX, ScriptedAgents, accounted, done

MARK = "rb1.key"
RUN = {
    "JobID": "7", "JobIDRaw": "7", "UID": "2001", "State": "COMPLETED", "Submit": "1764000000",
    "Start": "1764000010", "ElapsedRaw": "100", "TimelimitRaw": "10", "AllocCPUS": "4",
    "AllocTRES": "billing=4,cpu=4,mem=2000M,node=2", "TotalCPU": "05:00.500", "TRESUsageInTot": "",
    "Comment": MARK, "SubmitLine": "sbatch --comment=other",
}  # fmt: skip
MIB = 1024 * 1024


def step(name: str, cpu: str, mib: int, job_id: str = "7") -> dict[str, str]:
    used = f"cpu=00:00:01,energy=0,fs/disk=2612,mem={mib * MIB},pages=0,vmem=1"
    blank = dict.fromkeys(RUN, "")
    names = {"JobID": f"{job_id}.{name}", "JobIDRaw": f"{job_id}.{name}"}
    return {**blank, **names, "State": "COMPLETED", "TotalCPU": cpu, "TRESUsageInTot": used}


def run(**fields: str) -> dict[str, str]:
    return {**RUN, **fields}


def text(*records: dict[str, str]) -> str:
    return "".join("|".join(record[name] for name in ended_usage.FIELDS) + "\n" for record in records)


def usages(*records: dict[str, str]) -> tuple[PastUsage, ...]:
    report = ParseReport()
    rows = list(ended_usage.read_rows(text(*records), report))
    assert report.complete
    marks = {(record["JobIDRaw"], read_time(record["Submit"])): record["Comment"] for record in records}
    return build_past_usages(replace(row, mark=marks[row.raw_id, row.submitted_at]) for row in rows)


def test_cpu_time_of_steps_is_added_up_and_the_largest_step_is_the_memory() -> None:
    (used,) = usages(
        run(), step("batch", "00:00.996", 5), step("extern", "00:00:00", 0), step("0", "05:00.5", 99)
    )
    assert used.cpu_s == pytest.approx(301.496)
    assert (used.cpus, used.elapsed_s, used.allocated_cpu_s) == (4, 100, 400)
    assert (used.memory_bytes, used.allocated_memory_bytes) == (99 * MIB, 2000 * MIB)
    assert (used.time_limit_s, used.mark) == (600, MARK)


def test_hours_and_days_of_cpu_time_and_other_units_of_memory() -> None:
    had = run(AllocTRES="cpu=1,mem=1.50G,node=1", TimelimitRaw="UNLIMITED")
    (used,) = usages(had, step("batch", "1-02:00:03", 1))
    assert used.cpu_s == 26 * 3600 + 3
    assert (used.allocated_memory_bytes, used.time_limit_s) == (1536 * MIB, None)


@pytest.mark.parametrize("measured", ["", "cpu=,mem="])
def test_what_slurm_did_not_measure_is_unknown_and_not_zero(measured: str) -> None:
    (used,) = usages(run(), {**step("batch", "00:00:00", 1), "TRESUsageInTot": measured})
    assert (used.cpu_s, used.memory_bytes) == (None, None)


def test_a_step_that_ended_before_its_memory_was_measured() -> None:
    (used,) = usages(run(), step("batch", "00:01.250", 0))
    assert (used.cpu_s, used.memory_bytes) == (1.25, None)


def test_of_a_job_whose_nodes_were_changed_all_sizes_count() -> None:
    large = run(State="RESIZING", ElapsedRaw="60", AllocCPUS="8", AllocTRES="cpu=8,mem=4000M,node=2")
    small = run(Submit="1764000070", Start="1764000070", ElapsedRaw="40", TimelimitRaw="20")
    (used,) = usages(small, step("1", "00:30", 8), large, step("0", "05:00", 99))
    assert (used.cpus, used.elapsed_s, used.allocated_cpu_s) == (8, 100, 8 * 60 + 4 * 40)
    assert (used.cpu_s, used.memory_bytes, used.allocated_memory_bytes) == (330, 99 * MIB, 4000 * MIB)
    assert (used.submitted_at, used.time_limit_s) == (datetime.fromtimestamp(1764000000, UTC), 1200)
    again = run(State="COMPLETED", Submit="1764000200", Start="1764000300", ElapsedRaw="7")
    (used,) = usages(large, {**small, "State": "REQUEUED"}, again)
    assert (used.elapsed_s, used.allocated_cpu_s) == (7, 28)


def test_of_a_requeued_job_the_last_run_counts() -> None:
    again = run(Submit="1764000200", Start="1764000300", ElapsedRaw="7")
    (used,) = usages(again, step("batch", "00:03", 8), run(State="REQUEUED"), step("batch", "09:00", 80))
    assert (used.elapsed_s, used.cpu_s, used.memory_bytes) == (7, 3, 8 * MIB)


def test_a_job_whose_last_run_has_not_ended_is_left_out() -> None:
    again = run(Submit="1764000200", Start="1764000300", State="RUNNING")
    assert usages(run(), step("batch", "00:03", 8), again, step("batch", "00:03", 8)) == ()


def test_an_id_that_was_given_again_is_two_jobs() -> None:
    old = run(Comment="rb1.old", Submit="1700000000", Start="1700000000", ElapsedRaw="1")
    found = usages(old, step("batch", "00:09", 9), run(), step("batch", "00:03", 8))
    assert {used.mark: used.cpu_s for used in found} == {"rb1.old": 9, MARK: 3}


def test_tasks_of_an_array_share_cpu_time_and_have_memory_each() -> None:
    first = run(JobID="7_1", JobIDRaw="8")
    last = run(JobID="7_2", JobIDRaw="7", ElapsedRaw="50", AllocTRES="cpu=4,mem=1000M,node=1")
    never = run(
        JobID="7_[3-9]", JobIDRaw="9", State="CANCELLED by 2001", ElapsedRaw="0", AllocCPUS="0", AllocTRES=""
    )
    (used,) = usages(first, step("batch", "01:00", 10, "8"), last, step("batch", "01:30", 900), never)
    assert (used.job_id, used.cpus, used.elapsed_s) == ("7", 4, 100)
    assert (used.cpu_s, used.allocated_cpu_s) == (150, 600)
    assert (used.memory_bytes, used.allocated_memory_bytes) == (900 * MIB, 1000 * MIB)


def test_an_array_of_which_a_task_runs_is_left_out() -> None:
    assert usages(run(JobID="7_1", JobIDRaw="8"), run(JobID="7_2", JobIDRaw="7", State="RUNNING")) == ()


def test_a_step_counts_for_its_own_job_alone() -> None:
    (used,) = usages(run(), step("batch", "00:03", 8), step("batch", "09:00", 80, "9"))
    assert (used.cpu_s, used.memory_bytes) == (3, 8 * MIB)


def test_components_of_a_het_job_are_added_up() -> None:
    second = run(JobID="7+1", JobIDRaw="8", AllocCPUS="2", ElapsedRaw="90")
    (used,) = usages(run(JobID="7+0"), step("batch", "01:00", 10), second, step("0", "00:30", 20, "8"))
    assert (used.cpus, used.cpu_s, used.allocated_cpu_s) == (6, 90, 580)
    assert (used.memory_bytes, used.allocated_memory_bytes) == (30 * MIB, 4000 * MIB)


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_has_the_numbers_of_each_kind_of_job(release: str) -> None:
    """`capture.USED`: 50 MB in each process that holds some. 22.05 measured the first node alone."""
    report = ParseReport()
    rows = list(ended_usage.read_rows(output(release, "ended.txt"), report))
    names = {job_id: name for name, job_id in json.loads(output(release, "ended-ids.json")).items()}
    used = {names[job.job_id]: job for job in build_past_usages(rows)}
    assert report.complete
    assert used.keys() == set(names.values())
    held = {name: (job.memory_bytes or 0) // MIB for name, job in used.items()}
    had = {name: (job.allocated_memory_bytes or 0) // MIB for name, job in used.items()}
    assert 45 <= held["busy"] < 100
    assert 45 <= held["array"] < 100
    of_both = 45 if release == "22.05" else 90
    assert of_both <= held["nodes"] < 200
    assert of_both <= held["het"] < 200
    assert (had["busy"], had["array"], had["nodes"], had["het"]) == (200, 100, 600, 300)
    busy = used["busy"]
    assert (busy.cpus, busy.time_limit_s, busy.allocated_cpu_s) == (2, 300, 2 * busy.elapsed_s)
    assert busy.cpu_s is not None
    assert 1 <= busy.cpu_s <= busy.elapsed_s
    assert used["array"].allocated_cpu_s >= used["array"].elapsed_s
    assert used["requeued"].elapsed_s < 60
    never = used["never"]
    assert (never.elapsed_s, never.cpu_s, never.memory_bytes) == (0, None, None)


async def asked(agents: ScriptedAgents) -> tuple[PastUsage, ...] | None:
    return await SlurmManager(agents, REDBOX).past_usage(ALICE, ["9", "7"])


async def test_the_user_asks_once_and_only_own_jobs_count() -> None:
    theirs = run(JobID="9", JobIDRaw="9", UID="2002")
    agents = ScriptedAgents({"sacct --noheader": accounted(run(), step("batch", "00:03", 8), theirs)})
    found = await asked(agents)
    assert found is not None
    assert [(used.job_id, used.mark) for used in found] == [("7", MARK)]
    numbers, texts = (call for call in agents.calls if call[1][:2] == ["sacct", "--noheader"])
    assert (numbers[0], numbers[1][-1]) == ("alice", "--jobs=7,9")
    assert "--allocations" not in numbers[1]
    assert (texts[0], texts[1][-1]) == ("alice", "--jobs=7")


async def test_without_accounting_nobody_asks() -> None:
    config = output("24.11", "config.txt").replace("accounting_storage/slurmdbd", "accounting_storage/none")
    agents = ScriptedAgents({"scontrol show config": done(config)})
    assert await asked(agents) is None
    assert agents.called("sacct") == []


@pytest.mark.parametrize(
    "answer", [done("", "sacct: error: Unable to connect to slurmdbd", 1), done("7~cut")]
)
async def test_an_accounting_that_does_not_answer_wholly_is_a_fault(answer: CommandResult) -> None:
    with pytest.raises(WorkloadManagerError):
        await asked(ScriptedAgents({"sacct --noheader": answer}))


async def test_a_record_without_an_id_is_a_fault() -> None:
    with pytest.raises(WorkloadManagerError, match="parsed completely"):
        await asked(ScriptedAgents({"sacct --noheader": accounted(run(JobIDRaw="seven"))}))
