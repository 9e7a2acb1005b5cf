"""What a job uses, or used, of what it has. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.redbox.answers import RunningUsage, UsageAtEnd

MEMORY = re.compile(r"([0-9]+)([KMGT]?)")
MEGABYTES = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
BYTES_IN_MB = 1024 * 1024


@dataclass(frozen=True)
class ShownUsage:
    """Of a running job until now, of an ended one of its last run. None: unknown, or without a limit.

    CPU time is that of all CPUs together; memory that of all processes, of an ended job at most.
    """

    cpus: int | None = None
    cpu_s: float | None = None
    cpu_s_had: float | None = None
    memory_mb: float | None = None
    memory_mb_had: float | None = None
    elapsed_s: float | None = None
    limit_s: float | None = None

    @property
    def cpu_share(self) -> str:
        """How much of the CPU time that it had it used."""
        return percent(self.cpu_s, self.cpu_s_had)

    @property
    def memory_share(self) -> str:
        return percent(self.memory_mb, self.memory_mb_had)

    @property
    def time_share(self) -> str:
        return percent(self.elapsed_s, self.limit_s)


def usage_of_running(
    job: SlurmJobView, report: RunningUsage | None, now: datetime, limit_s: float | None
) -> ShownUsage:
    """By red-box's report of it, if there is one. What it has is what its SlurmJob asks for."""
    cpus, memory_mb = asked_for(job)
    elapsed_s = job.elapsed_s(now)
    return ShownUsage(
        cpus=cpus,
        cpu_s=report.cpu_seconds if report else None,
        cpu_s_had=cpus * elapsed_s if cpus and elapsed_s else None,
        memory_mb=report.memory_bytes / BYTES_IN_MB if report else None,
        memory_mb_had=memory_mb,
        elapsed_s=elapsed_s,
        limit_s=limit_s,
    )


def usage_of_ended(report: UsageAtEnd) -> ShownUsage:
    """By red-box's report of it."""
    used, had = report.memory_bytes, report.allocated_memory_bytes
    return ShownUsage(
        cpus=report.cpus or None,
        cpu_s=report.cpu_seconds,
        cpu_s_had=report.allocated_cpu_seconds,
        memory_mb=None if used is None else used / BYTES_IN_MB,
        memory_mb_had=None if had is None else had / BYTES_IN_MB,
        elapsed_s=report.elapsed_seconds,
        limit_s=report.time_limit_seconds,
    )


def asked_for(job: SlurmJobView) -> tuple[int | None, float | None]:
    """CPUs and megabytes of the whole job, by the fields of the SlurmJob, not by #SBATCH lines."""
    resources = job.resources
    nodes = int(resources.get("nodes") or 0)
    per_node = int(resources.get("tasksPerNode") or 0)
    tasks = int(resources.get("tasks") or 0) or nodes * per_node
    per_task = int(resources.get("cpusPerTask") or 0)
    cpus = (tasks or nodes or 1) * (per_task or 1) if tasks or per_task else None
    memory = None
    if text := resources.get("memPerNode"):
        memory = megabytes_of(text) * max(nodes, len(job.status.get("nodes") or ()), 1)
    elif (text := resources.get("memPerCpu")) and cpus:
        memory = megabytes_of(text) * cpus
    return cpus, memory or None


def megabytes_of(text: object) -> float:
    """A --mem of sbatch; 0 if it cannot be read."""
    found = MEMORY.fullmatch(str(text or ""))
    return int(found[1]) * MEGABYTES[found[2]] if found else 0.0


def percent(part: float | None, whole: float | None) -> str:
    return "?" if part is None or not whole else f"{part / whole * 100:.0f}%"
