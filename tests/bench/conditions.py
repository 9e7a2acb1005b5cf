"""Under which conditions something was measured: the machine, and the versions of what ran on it."""

import os
import platform
import re
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.errors import BedError
from redbox_bed.plan import Role


def machine_conditions(now: datetime) -> dict[str, str | int | float]:
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "date": now.isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": model[1] if model else platform.machine(),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else 0,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "red_box": version("red-box"),
    }


def bed_versions(bed: Bed) -> dict[str, str]:
    """Ask what runs on the bed; one that does not answer is noted so, and its own benchmarks will say why."""
    return {
        f"slurm_{cluster.name}": _version(bed, cluster.login, "sinfo", "--version")
        for cluster in bed.plan.clusters
    } | {
        f"containerd_{spec.name}": _version(bed, spec.name, "containerd", "--version")
        for spec in bed.plan.of_role(Role.NODE)
    }


def _version(bed: Bed, host: str, *command: str) -> str:
    try:
        return bed.host(host).run(*command, timeout=20).stdout.strip()
    except BedError as error:
        return f"no answer: {error}"
