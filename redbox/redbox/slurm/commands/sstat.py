"""sstat: the usage of the steps of running jobs, as the slurmds measured it last, for the jobs' user alone.

Jobs that have ended or not started are left out without an error. With JobAcctGatherType=jobacct_gather/none
sstat shows steps without numbers; they are left out here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from redbox.core.workload_manager import StepUsage
from redbox.slurm.text.values import read_number, read_tres
from redbox_shared.sbatch_options import read_duration

FIELDS = ("JobID", "TRESUsageInTot")
SEPARATOR = "|"  # sstat has no other; neither field contains free text


def usage_argv(job_ids: Collection[str]) -> list[str]:
    """All steps of these jobs, of an array or het job by its leader's id; memory in bytes."""
    options = ["--noheader", "--allsteps", "--parsable2", "--noconvert", f"--format={','.join(FIELDS)}"]
    return ["sstat", *options, f"--jobs={','.join(job_ids)}"]


def read_usage(text: str) -> Iterator[StepUsage]:
    """`7.batch|cpu=00:00:01,energy=0,mem=5013504,…` for each step."""
    for line in text.splitlines():
        step, _, amounts = line.partition(SEPARATOR)
        job_id, _, name = step.partition(".")
        if not amounts or read_number(job_id) is None:
            continue
        used = read_tres(amounts)
        cpu, memory = read_duration(used.get("cpu", "")), read_number(used.get("mem", ""))
        if cpu is not None and memory is not None:
            yield StepUsage(job_id, name, float(cpu), memory)
