"""Slurm's reasons and ends in words: what to do about each. Pure.

What happened is the SlurmJob's own message; this is the cure.
"""

from __future__ import annotations

from kubectl_slurm.slurmjobs.clusters import ListedPartition
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.usage import megabytes_of
from kubectl_slurm.terminal.times import limit, megabytes
from redbox_shared.sbatch_options import read_duration

SUBMIT_AGAIN = "cancel it, and submit it again with"
CURES = {
    "Resources": "nothing: it is next in its queue. `kubectl slurm info` shows what is free; a shorter "
    "--time lets Slurm fit it into gaps.",
    "Priority": "nothing: it starts in its turn. A shorter --time and fewer resources let Slurm fit it in.",
    "Dependency": "nothing: it starts when the jobs below have ended as required.",
    "DependencyNeverSatisfied": "cancel it; submit it again once the jobs below have ended as required.",
    "JobHeldUser": "`kubectl slurm release {name}`, or `kubectl slurm resume {name}` where it is suspended.",
    "JobHeldAdmin": "ask the administrators of the cluster why they hold it.",
    "BeginTime": "nothing: its begin time has not come.",
    "PartitionTimeLimit": f"{SUBMIT_AGAIN} a shorter --time, or another --partition.",
    "PartitionNodeLimit": f"{SUBMIT_AGAIN} fewer --nodes, or another --partition.",
    "PartitionConfig": f"{SUBMIT_AGAIN} less, or another --partition.",
    "BadConstraints": f"{SUBMIT_AGAIN} less, or with another --constraint or --partition.",
    "PartitionDown": "wait, or submit it to another --partition.",
    "PartitionInactive": "wait, or submit it to another --partition.",
    "InvalidAccount": f"{SUBMIT_AGAIN} an --account that you may use: `kubectl slurm doctor` lists them.",
    "InvalidQOS": f"{SUBMIT_AGAIN} a --qos that you may use: `kubectl slurm doctor` lists them.",
    "Licenses": "nothing: it starts when a licence is free.",
    "Reservation": "nothing: it starts with its reservation.",
    "NodeDown": "wait, or submit it again with other nodes.",
}
RELEASE = (
    "`kubectl slurm release {name}`; with --backoff-limit Red Box does so by itself. If it comes again, ask "
    "the administrators of the cluster."
)
PREFIXES = (
    ("ReqNodeNotAvail", "wait until the nodes are back, or submit it again without --nodelist."),
    ("Assoc", "wait until others of this account have ended, or use another --account."),
    ("QOS", "wait until others of this QOS have ended, or use another --qos."),
    ("Max", "wait until your other jobs have ended."),
)
END_CURES = {
    "TIMEOUT": "submit it again with a longer --time.",
    "DEADLINE": "submit it again earlier, or with a later --deadline.",
    "OUT_OF_MEMORY": "submit it again with more --mem.",
    "NODE_FAIL": "submit it again; --backoff-limit 1 does so by itself.",
    "BOOT_FAIL": "submit it again; --backoff-limit 1 does so by itself.",
    "PREEMPTED": "submit it again, or with a --qos that is not preempted.",
    "FAILED": "`kubectl slurm logs {name}` has its output.",
}


def cure_of(job: SlurmJobView) -> str:
    """What to do, or nothing where nothing is known."""
    if job.finished:
        return END_CURES.get(job.state, "").format(name=job.name)
    if job.held_by_slurm:
        return RELEASE.format(name=job.name)
    reason = job.reason.strip("()")
    text = CURES.get(reason) or next((cure for start, cure in PREFIXES if reason.startswith(start)), "")
    return text.format(name=job.name)


def limits_met(job: SlurmJobView, partition: ListedPartition | None) -> list[str]:
    """The limits of its partition that its own fields exceed."""
    if partition is None:
        return []
    resources, found = job.resources, []
    asked_s, longest = read_duration(job.time_limit), partition.limit("maxTimeS")
    if asked_s is not None and longest is not None and asked_s > longest:
        found.append(
            f"it asks for --time={job.time_limit}; partition {partition.name} allows {limit(longest)}"
        )
    nodes, most = resources.get("nodes"), partition.limit("maxNodes")
    if nodes and most is not None and int(nodes) > most:
        found.append(f"it asks for --nodes={nodes}; partition {partition.name} allows {most}")
    total = partition.amount("total", "nodes")
    if nodes and total is not None and int(nodes) > total:
        found.append(f"it asks for --nodes={nodes}; partition {partition.name} has {total}")
    per_task, largest = resources.get("cpusPerTask"), partition.amount("largestNode", "cpus")
    if per_task and largest is not None and int(per_task) > largest:
        found.append(
            f"it asks for --cpus-per-task={per_task}; the largest node of {partition.name} has {largest}"
        )
    return [*found, *_memory(job, partition)]


def _memory(job: SlurmJobView, partition: ListedPartition) -> list[str]:
    asked, largest = megabytes_of(job.resources.get("memPerNode")), partition.amount("largestNode", "memMb")
    if asked and largest is not None and asked > largest:
        has = megabytes(largest)
        return [f"it asks for --mem={megabytes(asked)}; the largest node of {partition.name} has {has}"]
    return []
