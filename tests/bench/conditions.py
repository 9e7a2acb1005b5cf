"""Under which conditions something was measured: the machine, and the versions of what ran on it."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Callable
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.places import CHECKOUT
from redbox_bed.core.plan import Role
from tests.bench.effort import is_short
from tests.bench.kubectl import Kubectl, KubectlError


def machine_conditions(now: datetime) -> dict[str, str | int | float | bool]:
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
        "commit": checked_out_commit(),
        "short": is_short(),
    }


def checked_out_commit() -> str:
    """Of this checkout, and whether anything in it was changed since."""
    asked = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty"]
    said = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=20)
    return said.stdout.strip() or "unknown"


def bed_versions(bed: Bed) -> dict[str, str]:
    """Ask what runs on the bed; one that does not answer is noted so, and its own benchmarks will say why."""
    asked = {
        f"slurm_{cluster.name}": partial(_said_on, bed, cluster.login, "sinfo", "--version")
        for cluster in bed.plan.clusters
    }
    for node in bed.plan.of_role(Role.NODE)[:1]:
        asked["containerd"] = partial(_said_on, bed, node.name, "containerd", "--version")
    return {name: _answer(ask) for name, ask in {**asked, "kubernetes": partial(_kubernetes, bed)}.items()}


def _said_on(bed: Bed, host: str, *command: str) -> str:
    return bed.host(host).run(*command, timeout=20).stdout.strip()


def _kubernetes(bed: Bed) -> str:
    answer: str = json.loads(Kubectl(bed.places, "default").run("get", "--raw", "/version"))["gitVersion"]
    return answer


def _answer(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except (BedError, KubectlError, OSError, subprocess.SubprocessError) as error:
        return f"no answer: {error}"
