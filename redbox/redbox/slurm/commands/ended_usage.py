"""sacct: what runs of jobs used and had: each run a row (-D), followed by the rows of its steps.

No user writes these fields; the marks of the runs are among `sacct.TEXTS`.

The numbers are those of seff: the TotalCPU of the steps, and the memory in the TRESUsageInTot of a step,
which adds up the peaks of its tasks. With JobAcctGatherType=jobacct_gather/none, and of a step whose node was
lost, TRESUsageInTot is empty: the step was not measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from redbox.core.workload_manager import StepUsage
from redbox.slurm.commands import sacct
from redbox.slurm.text.record_format import ParseReport, split_table
from redbox.slurm.text.states import read_state
from redbox.slurm.text.values import read_bytes, read_cpu_time, read_number, read_time, read_tres

FIELDS = (
    "JobID", "JobIDRaw", "UID", "State", "Submit", "Start", "ElapsedRaw", "TimelimitRaw", "AllocCPUS",
    "AllocTRES", "TotalCPU", "TRESUsageInTot",
)  # fmt: skip
NEEDED = frozenset(FIELDS)
MINUTE = 60


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One run of a job, of one task, or of one component of a het job."""

    job_id: str  # of the whole array or het job
    raw_id: str
    array_task: str | None
    het_offset: int
    uid: int
    state: str
    submitted_at: datetime | None
    started_at: datetime | None
    cpus: int
    elapsed_s: int
    time_limit_s: int | None
    memory_bytes: int | None
    mark: str = ""
    steps: tuple[StepUsage, ...] = ()
    """Those that were measured."""


def jobs_argv(job_ids: Collection[str]) -> list[str]:
    """All runs of these jobs, however old, with their steps; memory in the units that it has."""
    options = ["--noheader", "--duplicates", "--local", "--parsable2", "--noconvert"]
    return ["sacct", *options, f"--format={','.join(FIELDS)}", f"--jobs={','.join(job_ids)}"]


def read_rows(text: str, report: ParseReport) -> Iterator[UsageRow]:
    """The runs, each with the steps that follow it."""
    run: UsageRow | None = None
    for values in split_table(text, len(FIELDS), report):
        record = dict(zip(FIELDS, values, strict=True))
        job_id, is_step, step = record["JobIDRaw"].partition(".")
        if is_step:
            if run is not None and run.raw_id == job_id and (used := _step(job_id, step, record)):
                run = replace(run, steps=(*run.steps, used))
            continue
        if run is not None:
            yield run
        run = _run(record)
        report.dropped += run is None
    if run is not None:
        yield run


def _run(record: Mapping[str, str]) -> UsageRow | None:
    uid, raw_id = read_number(record["UID"]), read_number(record["JobIDRaw"])
    state, _ = read_state(record["State"])
    if uid is None or raw_id is None or not state:
        return None
    job_id, array_task, het_offset = sacct.read_id(record["JobID"])
    minutes = read_number(record["TimelimitRaw"])
    return UsageRow(
        job_id=job_id,
        raw_id=record["JobIDRaw"],
        array_task=array_task,
        het_offset=het_offset,
        uid=uid,
        state=state,
        submitted_at=read_time(record["Submit"]),
        started_at=read_time(record["Start"]),
        cpus=read_number(record["AllocCPUS"]) or 0,
        elapsed_s=read_number(record["ElapsedRaw"]) or 0,
        time_limit_s=None if minutes is None else minutes * MINUTE,
        memory_bytes=read_bytes(read_tres(record["AllocTRES"]).get("mem", "")),
    )


def _step(job_id: str, step: str, record: Mapping[str, str]) -> StepUsage | None:
    cpu_s, memory = read_cpu_time(record["TotalCPU"]), read_tres(record["TRESUsageInTot"]).get("mem", "")
    memory_bytes = read_bytes(memory)
    if cpu_s is None or memory_bytes is None:
        return None
    return StepUsage(job_id, step, cpu_s, memory_bytes)
