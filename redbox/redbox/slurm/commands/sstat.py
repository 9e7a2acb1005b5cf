"""sstat: what the steps of running jobs use, as the slurmds measured it last. Only the jobs' user may ask.

What has ended, or never began, is not shown, and is no error. Where Slurm gathers nothing
(JobAcctGatherType=jobacct_gather/none) the steps are shown without numbers, and are left out here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from redbox.core.workload_manager import StepUsage
from redbox.slurm.text.values import read_duration, read_number

FIELDS = ("JobID", "TRESUsageInTot")
SEPARATOR = "|"  # sstat takes no other; neither field has anybody's free text


def of_jobs(job_ids: Collection[str]) -> list[str]:
    """All steps of these jobs, an array's or het job's by its leader; memory in plain bytes."""
    return [
        "sstat",
        "--noheader",
        "--allsteps",
        "--parsable2",
        "--noconvert",
        f"--format={','.join(FIELDS)}",
        f"--jobs={','.join(job_ids)}",
    ]


def read_rows(text: str) -> Iterator[StepUsage]:
    """`7.batch|cpu=00:00:01,energy=0,mem=5013504,…` for each step."""
    for line in text.splitlines():
        step, _, amounts = line.partition(SEPARATOR)
        job_id, _, name = step.partition(".")
        used = dict(part.partition("=")[::2] for part in amounts.split(","))
        cpu, memory = read_duration(used.get("cpu", "")), read_number(used.get("mem", ""))
        if read_number(job_id) is not None and cpu is not None and memory is not None:
            yield StepUsage(job_id, name, float(cpu), memory)
