"""A whole Slurm cluster from nothing: deploy/chart-slurm, and the first job on it.

Slurm 26.05 with accounting, its database, a login pod, two workers and a red-box. Images are on the nodes,
and the operators run. The job is applied when `helm install` returns, and ends when its SlurmJob says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from redbox_bed.bed import Bed
from tests.bench.benchmark import Trial, benchmark
from tests.bench.hosted import RELEASE
from tests.bench.rows import Figure, Target
from tests.e2e.harness.chart_slurm import ChartSlurm, bed_values, remove, storage, until_operator_is_new
from tests.e2e.harness.hosted_slurm import NAMESPACE, hosting
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.waiting import eventually

FIGURE = "hosted-chart"


@contextmanager
def with_database(bed: Bed) -> Iterator[ChartSlurm]:
    with hosting(bed, RELEASE, database=True) as kubernetes:
        until_operator_is_new(kubernetes)
        yield ChartSlurm(bed, kubernetes)


@benchmark(
    Figure(FIGURE, "helm install of the whole chart -> first SlurmJob's end", "s", Target("value", "<=", 30)),
    takes_s=240,
    rounds=3,
    warm_up=False,
    within=with_database,
)
@contextmanager
def hosted_chart(chart: ChartSlurm) -> Iterator[Trial]:
    yield Trial(lambda: installed(chart), notes={"slurm": RELEASE})


def installed(chart: ChartSlurm) -> Mapping[str, float]:
    with storage(chart.bed, chart.kubernetes):
        started = time.perf_counter()
        chart.install(bed_values(chart.kubernetes))
        job = chart.submit("true")
        job.finishes()
        took = time.perf_counter() - started
        job.delete()
        remove(chart)
    eventually(lambda: is_empty(chart.kubernetes), what="the end of all objects")
    return {FIGURE: took}


def is_empty(kubernetes: Kubernetes) -> bool:
    return not any(kubernetes.list(kind, NAMESPACE) for kind in ("pod", "secret", "service"))
