"""squeue for counting: every job with what Slurm's metrics count of it. `squeue` has its argument list.

Jobs that are counted alike are one row with a number: of ten thousand waiting jobs most are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from redbox.slurm.text.array_expressions import count
from redbox.slurm.text.record_format import ParseReport, RecordFormat, read_records
from redbox.slurm.text.states import is_waiting, read_state
from redbox.slurm.text.values import read_number, text_or_none

FIELDS = (
    "State", "Reason", "Partition", "Account", "UserName", "ArrayTaskID", "NumNodes", "MaxNodes",
    "tres-alloc", "NodeList",
)  # fmt: skip
ALLOCATED = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED"})
"""States in which a job has its resources."""
HELD = frozenset({"JobHeldUser", "JobHeldAdmin"})
NODE_LIMIT = "PartitionNodeLimit"
TRES = re.compile(r"(?:^|,)(cpu|mem|gres/gpu)=([0-9]+)(?:\.([0-9]+))?([KMGTP]?)(?=,|$)")
MEMORY_MB = {"K": 2**-10, "": 1, "M": 1, "G": 2**10, "T": 2**20, "P": 2**30}
COUNTS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}


class CountedJob(NamedTuple):
    """All that is counted of a job."""

    state: str
    partition: str
    account: str
    user: str
    tasks: int = 1  # of an array: those that are not split off yet
    held: bool = False
    node_limit: bool = False
    min_nodes: int = 0
    max_nodes: int = 0
    cpus: int = 0
    mem_mb: int = 0
    gpus: int = 0
    nodes: str = ""


def read_jobs(text: str, record_format: RecordFormat, report: ParseReport) -> Iterator[CountedJob]:
    """A record that cannot be parsed is dropped and counted."""
    return read_records(text, record_format, report, _read_job)


def _read_job(fields: dict[str, str]) -> CountedJob | None:
    """None without a state."""
    state, _ = read_state(fields["State"])
    if not state:
        return None
    # A job that may run in several partitions is counted in the first that it names.
    partition = fields["Partition"].partition(",")[0]
    account, user = text_or_none(fields["Account"]) or "", fields["UserName"]
    tasks = count(fields["ArrayTaskID"]) or 1
    if state in ALLOCATED:
        cpus, mem_mb, gpus = read_tres(fields["tres-alloc"])
        nodes = text_or_none(fields["NodeList"]) or ""
        return CountedJob(
            state, partition, account, user, tasks, cpus=cpus, mem_mb=mem_mb, gpus=gpus, nodes=nodes
        )
    if not is_waiting(state):
        return CountedJob(state, partition, account, user, tasks)
    least = read_number(fields["NumNodes"]) or 0
    return CountedJob(
        state,
        partition,
        account,
        user,
        tasks,
        held=fields["Reason"] in HELD,
        node_limit=fields["Reason"] == NODE_LIMIT,
        min_nodes=least,
        max_nodes=max(least, read_number(fields["MaxNodes"]) or 0),
    )


def read_tres(text: str) -> tuple[int, int, int]:
    """CPUs, memory in MB and GPUs of `cpu=4,mem=1.50G,node=1,billing=4,gres/gpu=2,gres/gpu:a100=2`."""
    found = {"cpu": 0, "mem": 0, "gres/gpu": 0}
    for name, whole, part, unit in TRES.findall(text):
        scale = (MEMORY_MB if name == "mem" else COUNTS)[unit]
        found[name] = int(float(f"{whole}.{part or 0}") * scale)
    return found["cpu"], found["mem"], found["gres/gpu"]
