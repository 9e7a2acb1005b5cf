"""Slurm without Red Box."""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from redbox_bed.bed import Bed
from tests.bench.benchmark import Trial, benchmark
from tests.bench.rows import Figure, percentile

LOADS = Path(__file__).parent / "loads"
USER = "alice"
SUBMITS = 200
CLEARS_WITHIN_S = 180
FORGETS_WITHIN_S = 480


def on_login(bed: Bed, load: str, *arguments: int, timeout: float = 300) -> Any:
    """Run one of the loads on the login host, so that entering it is not part of what is measured."""
    words = [str(argument) for argument in arguments]
    program = (LOADS / load).read_text()
    return json.loads(
        bed.host("login").run("python3", "-", *words, user=USER, stdin=program, timeout=timeout).stdout
    )


def clear(bed: Bed) -> None:
    """Cancel all of the user's jobs and see that they are gone."""
    login = bed.host("login")
    login.run("scancel", "-u", USER, timeout=CLEARS_WITHIN_S)
    deadline = time.monotonic() + CLEARS_WITHIN_S
    while left := login.run("squeue", "-h", "-u", USER).stdout.count("\n"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left} jobs of {USER} are still queued {CLEARS_WITHIN_S} s after scancel")
        time.sleep(0.5)


@contextmanager
def queued(bed: Bed, count: int) -> Iterator[None]:
    """Have this many held jobs in the queue."""
    clear(bed)
    try:
        if count:
            on_login(bed, "submit.py", count, 8, timeout=600)
        yield
    finally:
        clear(bed)


def submit_trial(bed: Bed, name: str, parallel: int) -> Trial:
    def measure() -> dict[str, float]:
        with queued(bed, 0):
            seen = on_login(bed, "submit.py", SUBMITS, parallel)
        milliseconds = [call * 1000 for call in seen["calls"]]
        return {
            f"{name}-rate": SUBMITS / seen["whole"],
            f"{name}-p50": percentile(milliseconds, 50),
            f"{name}-p99": percentile(milliseconds, 99),
        }

    return Trial(measure, notes={"jobs_per_round": SUBMITS, "jobs": "held", "submitters": parallel})


def wait_until_forgotten(bed: Bed, most: int) -> int:
    """Wait until slurmctld remembers few finished jobs, and return how many.

    It sends those of the last MinJobAge (300 s) with every answer, and only squeue leaves them out.
    """
    deadline = time.monotonic() + FORGETS_WITHIN_S
    while (remembered := bed.host("login").run("squeue", "-h", "-a", "-t", "all").stdout.count("\n")) > most:
        if time.monotonic() > deadline:
            raise TimeoutError(f"slurmctld remembers {remembered} finished jobs after {FORGETS_WITHIN_S} s")
        time.sleep(5)
    return remembered


@contextmanager
def squeue_trial(bed: Bed, count: int) -> Iterator[Trial]:
    clear(bed)
    remembered = wait_until_forgotten(bed, most=count // 10)
    with queued(bed, count):

        def measure() -> dict[str, float]:
            calls = on_login(bed, "squeue.py", 20)
            return {f"squeue-{count}": percentile(calls, 50) * 1000}

        yield Trial(measure, notes={"held_jobs": count, "finished_jobs": remembered, "calls_per_round": 20})


def submit_figures(name: str, how: str) -> tuple[Figure, Figure, Figure]:
    return (
        Figure(f"{name}-rate", f"bare sbatch, {how}", "jobs/s"),
        Figure(f"{name}-p50", f"one bare sbatch, {how}: median", "ms"),
        Figure(f"{name}-p99", f"one bare sbatch, {how}: 99th percentile", "ms"),
    )


@benchmark(Figure("squeue-0", "squeue of all jobs, nothing queued", "ms"), takes_s=60)
def squeue_0(bed: Bed) -> AbstractContextManager[Trial]:
    return squeue_trial(bed, 0)


@benchmark(Figure("squeue-1000", "squeue of all jobs, 1,000 queued", "ms"), takes_s=60)
def squeue_1000(bed: Bed) -> AbstractContextManager[Trial]:
    return squeue_trial(bed, 1000)


@benchmark(Figure("squeue-10000", "squeue of all jobs, 10,000 queued", "ms"), takes_s=560)
def squeue_10000(bed: Bed) -> AbstractContextManager[Trial]:
    return squeue_trial(bed, 10000)


@benchmark(*submit_figures("sbatch-sequential", "one after the other"), takes_s=25)
@contextmanager
def sbatch_sequential(bed: Bed) -> Iterator[Trial]:
    yield submit_trial(bed, "sbatch-sequential", parallel=1)


@benchmark(*submit_figures("sbatch-parallel", "eight at a time"), takes_s=25)
@contextmanager
def sbatch_parallel(bed: Bed) -> Iterator[Trial]:
    yield submit_trial(bed, "sbatch-parallel", parallel=8)
