"""kubectl slurm: help and queue."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from redbox_bed.bed import Bed
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import deliver, take_away
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.rows import Figure, Target

PROGRAM = str(Path(sys.executable).parent / "kubectl-slurm")
TIMES = sized(20, 10)


def median_ms(command: list[str], env: Mapping[str, str]) -> float:
    """The median of several runs, each from its start to its end."""
    took = []
    for _ in range(TIMES):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=dict(env))
        took.append((time.perf_counter() - started) * 1000)
    return median(took)


@benchmark(
    Figure("cli-help", "kubectl-slurm --help", "ms", Target("value", "<=", 150)),
    rounds=5,
    baseline_name="an empty Python program",
    takes_s=10,
)
@contextmanager
def help_of_the_plugin(bed: Bed) -> Iterator[Trial]:
    del bed
    yield Trial(
        measure=lambda: {"cli-help": median_ms([PROGRAM, "--help"], os.environ)},
        baseline=lambda: {"cli-help": median_ms([sys.executable, "-c", "pass"], os.environ)},
    )


@benchmark(
    Figure("cli-queue", "kubectl slurm queue", "ms", Target("value", "<=", 600)),
    rounds=5,
    baseline_name="kubectl get slurmjobs -o json",
    takes_s=60,
)
@contextmanager
def queue_of_the_plugin(bed: Bed) -> Iterator[Trial]:
    deliver(bed, Progress.silent(), unless_current=True)
    tools = bed.places.state / "bin"
    env = {**os.environ, "KUBECONFIG": str(bed.places.kubeconfig)}
    env["PATH"] = f"{tools}:{Path(PROGRAM).parent}:{env['PATH']}"
    queue = [str(tools / "kubectl"), "slurm", "queue", "--namespace=alice"]
    get = [str(tools / "kubectl"), "get", "slurmjobs", "--namespace=alice", "--output=json"]
    try:
        yield Trial(
            measure=lambda: {"cli-queue": median_ms(queue, env)},
            baseline=lambda: {"cli-queue": median_ms(get, env)},
        )
    finally:
        take_away(bed)
