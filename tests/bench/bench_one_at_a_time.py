"""One short job after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from uuid import uuid4

from redbox_bed.bed import Bed
from tests.bench.bench_slurm import USER
from tests.bench.bench_slurmjobs import both, slurm_job
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.kubectl import Kubectl
from tests.bench.rows import Figure, Target
from tests.e2e.harness.virtual_chart import virtual_delivery

JOBS = sized(15, 5)
WAITING = (
    "id=$(sbatch --parsable --output=/dev/null --wrap=true); "
    'while squeue -h -j "$id" | grep -q .; do sleep 1; done'
)
"""A loop of so many scripts: it looks once a second, as site documentation has it."""
FINISHED = 'jsonpath={.object.metadata.name} {.object.status.endedAt}{"\\n"}'


@benchmark(
    Figure(
        "virtual-one-at-a-time",
        "kubectl apply of a SlurmJob (`true`, virtual delivery) -> final status: median",
        "s",
        Target("ratio", "<=", 1),
    ),
    takes_s=150,
    rounds=2,
    baseline_name="sbatch, then squeue each second",
)
@contextmanager
def virtual_one_at_a_time(bed: Bed) -> Iterator[Trial]:
    with both(bed) as (jobs, _), virtual_delivery(bed):
        yield Trial(
            lambda: {"virtual-one-at-a-time": median(slurmjob_s(jobs) for _ in range(JOBS))},
            lambda: {"virtual-one-at-a-time": median(bare_s(bed) for _ in range(JOBS))},
            notes={"jobs_per_round": JOBS},
        )


def slurmjob_s(jobs: Kubectl) -> float:
    """Its own kubectl apply is part of it."""
    name = f"one-{uuid4().hex[:8]}"
    with jobs.reading("get", "slurmjobs", "--watch-only", "--output-watch-events", "-o", FINISHED) as watch:
        stream = watch.stdout
        assert stream
        started = time.perf_counter()
        jobs.apply(slurm_job(name, "true"))
        for line in stream:
            words: list[str] = line.decode().split()
            if words[:1] == [name] and len(words) > 1:
                return time.perf_counter() - started
    raise RuntimeError(f"the watch ended before {name} did")


def bare_s(bed: Bed) -> float:
    started = time.perf_counter()
    bed.host("login").run("sh", "-c", WAITING, user=USER, timeout=60)
    return time.perf_counter() - started
