"""What a job asked for, as far as its SlurmJob says so, and what it uses. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kubectl_slurm.slurmjobs.job import SlurmJobView

MEMORY = re.compile(r"([0-9]+)([KMGT]?)")
MEGABYTES = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
BYTES_IN_MB = 1024 * 1024


@dataclass(frozen=True)
class AskedFor:
    """CPUs and megabytes of the whole job; None: neither the SlurmJob nor red-box says."""

    cpus: int | None = None
    mem_mb: float | None = None


@dataclass(frozen=True)
class UsedSoFar:
    """Seconds of all CPUs together, and the memory of all processes: now, or of an ended job at most."""

    cpu_s: float
    memory_bytes: int

    def cpu_share(self, asked: AskedFor, elapsed_s: float | None) -> float | None:
        """How much of the CPU time that it had it used: 1.0 is all of it."""
        if not asked.cpus or not elapsed_s:
            return None
        return self.cpu_s / (asked.cpus * elapsed_s)

    def memory_share(self, asked: AskedFor) -> float | None:
        if not asked.mem_mb:
            return None
        return self.memory_bytes / BYTES_IN_MB / asked.mem_mb


def asked_for(job: SlurmJobView) -> AskedFor:
    """From the fields of the SlurmJob: #SBATCH lines of its script are not among them."""
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
    return AskedFor(cpus, memory or None)


def megabytes_of(text: object) -> float:
    """A --mem of sbatch; 0 if it cannot be read."""
    found = MEMORY.fullmatch(str(text or ""))
    return int(found[1]) * MEGABYTES[found[2]] if found else 0.0


def percent(share: float | None) -> str:
    return "?" if share is None else f"{share * 100:.0f}%"
