"""SlurmJobs with virtual delivery."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from redbox_bed.bed import Bed
from tests.bench.bench_kubernetes import drain, kubectl_logs_latency, namespace
from tests.bench.bench_redbox import UNLIMITED
from tests.bench.bench_slurm import clear, on_login
from tests.bench.bench_slurmjobs import all_at_once, both, slurm_job
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.kubectl import Kubectl, pod
from tests.bench.rows import Figure, Target, percentile
from tests.bench.virtual_jobs import NAMESPACE, VirtualJobs, administrator
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.redbox_settings import settings_changed
from tests.e2e.harness.virtual_chart import virtual_delivery, with_containers
from tests.e2e.harness.virtual_delivery import Companion, Stand, virtual_stand

SINGLE = sized(20, 10)
BURST = 500
FEW = int(os.environ.get("BESIDE_CONTAINERS", "50"))
AT_ONCE = 16
LATENCIES = sized(60, 40)
MEGABYTES = 500
HELD = {"batch": "#!/bin/sh\ntrue\n", "hold": True}
LINE = "x" * 99
STAMPS = f"for i in $(seq 1 {LATENCIES}); do date +%s%N; sleep 0.2; done"
LINE_FIGURES = ("virtual-line-p50", "virtual-line-p99")
BARE = "bare sbatch"
NATIVE = "a native pod"


@contextmanager
def standing(bed: Bed) -> Iterator[Stand]:
    """Both sides, and nothing queued before and after."""
    clear(bed)
    with tempfile.TemporaryDirectory() as folder, virtual_stand(bed, Path(folder)) as stand:
        yield stand
        clear(bed)


@contextmanager
def nothing_left(stand: Stand) -> Iterator[None]:
    yield
    stand.kubernetes("delete", "pods", "-n", NAMESPACE, "-l", "bench=virtual", "--wait=false")
    stand.kubernetes("delete", "slurmjobs", "-n", NAMESPACE, "--all", "--wait=false")
    clear(stand.bed)


def lift_limits(settings: dict[str, Any]) -> None:
    """Of submits, in red-box's file of settings."""
    settings.setdefault("jobs", {}).update(UNLIMITED["jobs"])


def submit(bed: Bed, count: int, at_once: int) -> tuple[float, list[float]]:
    """Seconds until all are in Slurm, and those of each."""

    async def run() -> tuple[float, list[float]]:
        async with administrator(bed.places.kubeconfig) as objects:
            started = time.perf_counter()
            names = [f"b-{uuid4().hex[:10]}" for _ in range(count)]
            took = await VirtualJobs(objects, HELD).run(names, at_once=at_once)
            return time.perf_counter() - started, list(took.values())

    return asyncio.run(run())


@benchmark(
    Figure(
        "virtual-accepted-p50",
        "a pod is bound -> its job is in Slurm: median",
        "s",
        Target("value", "<=", 0.3),
    ),
    Figure("virtual-accepted-p99", "the same: 99th percentile", "s"),
    takes_s=45,
    short_s=25,
    rounds=3,
    within=standing,
)
@contextmanager
def virtual_accepted(stand: Stand) -> Iterator[Trial]:
    with nothing_left(stand):

        def measure() -> Mapping[str, float]:
            seconds = [submit(stand.bed, 1, 1)[1][0] for _ in range(SINGLE)]
            return {
                "virtual-accepted-p50": percentile(seconds, 50),
                "virtual-accepted-p99": percentile(seconds, 99),
            }

        yield Trial(measure, notes={"operator": "played by the benchmark", "jobs_per_round": SINGLE})


@benchmark(
    Figure(
        "virtual-burst-rate",
        f"{BURST} simultaneous SlurmJobs without a caller's limit: all in Slurm",
        "jobs/s",
        Target("value", ">=", 60),
    ),
    Figure("virtual-burst-seconds", "the same: time", "s"),
    takes_s=150,
    rounds=2,
    baseline_name=f"{BARE}, 8 submitters",
    within=standing,
)
@contextmanager
def virtual_burst(stand: Stand) -> Iterator[Trial]:
    """Red-box takes 200 submits of one caller at once and then 20 a second: that alone is 15 s of 500."""
    with settings_changed(stand.login, lift_limits), nothing_left(stand):

        def measure() -> Mapping[str, float]:
            whole, _ = submit(stand.bed, BURST, AT_ONCE)
            return {"virtual-burst-rate": BURST / whole, "virtual-burst-seconds": whole}

        def bare() -> Mapping[str, float]:
            whole = on_login(stand.bed, "submit.py", BURST, 8)["whole"]
            return {"virtual-burst-rate": BURST / whole, "virtual-burst-seconds": whole}

        yield Trial(measure, bare, notes={"operator": "played by the benchmark", "makers": AT_ONCE})


@benchmark(
    Figure(
        "virtual-beside-containers",
        f"{FEW} simultaneous SlurmJobs, with the operator: all in Slurm",
        "s",
    ),
    takes_s=200,
    rounds=1,
    baseline_name=f"{FEW} with container delivery",
)
@contextmanager
def virtual_beside_containers(bed: Bed) -> Iterator[Trial]:
    with both(bed) as (jobs, _), virtual_delivery(bed), with_containers(Kubernetes(bed)) as containers:

        def measure(cluster: str) -> Mapping[str, float]:
            names = [f"few-{number}" for number in range(FEW)]
            things = [slurm_job(name, "true", cluster=cluster) for name in names]
            return {"virtual-beside-containers": all_at_once(jobs, things)}

        yield Trial(lambda: measure("hpc1"), lambda: measure(containers))


@benchmark(
    Figure(
        "virtual-line-p50",
        "log line -> kubectl logs -f: median",
        "ms",
        Target("value", "<=", 300),
    ),
    Figure("virtual-line-p99", "the same: 99th percentile", "ms"),
    takes_s=110,
    short_s=35,
    rounds=2,
    baseline_name=NATIVE,
    within=standing,
)
@contextmanager
def virtual_line(stand: Stand) -> Iterator[Trial]:
    with nothing_left(stand), kubectl_logs_latency(stand.bed) as native:
        kubectl = Kubectl(stand.bed.places, NAMESPACE)

        def measure() -> Mapping[str, float]:
            companion = started(stand, f"#!/bin/sh\nsleep 1\n{STAMPS}\n")
            with kubectl.reading("logs", "--follow", companion.pod_name) as follower:
                assert follower.stdout
                return latencies(follower.stdout)

        def beside() -> Mapping[str, float]:
            seen = native.measure()
            return {name: seen[name.replace("virtual-line", "kubectl-logs-latency")] for name in LINE_FIGURES}

        yield Trial(measure, beside, notes={"lines_per_round": LATENCIES})


def latencies(stream: IO[bytes]) -> Mapping[str, float]:
    """Each line is the time at which it was written; all clocks here are one."""
    seen = [(time.time_ns() - int(line)) / 1e6 for line in stream if line.strip().isdigit()]
    if len(seen) != LATENCIES:
        raise RuntimeError(f"{len(seen)} lines came of {LATENCIES}")
    return {"virtual-line-p50": percentile(seen, 50), "virtual-line-p99": percentile(seen, 99)}


@benchmark(
    Figure(
        "virtual-log-api",
        f"a log of {MEGABYTES} MB, by kubectl get --raw",
        "MB/s",
        Target("value", ">=", 50),
    ),
    Figure(
        "virtual-log-throughput",
        "the same by kubectl logs, in lines of 100 bytes",
        "MB/s",
        Target("value", ">=", 50),
    ),
    Figure("virtual-log-lost", "bytes lost of both", "bytes"),
    takes_s=230,
    rounds=2,
    baseline_name=f"{NATIVE} (log cut by rotation)",
    within=standing,
)
@contextmanager
def virtual_log(stand: Stand) -> Iterator[Trial]:
    writes = f"yes {LINE} | head -c {MEGABYTES * 1_000_000}"
    with nothing_left(stand), namespace(stand.bed, "bench-virtual-log") as native:
        companion = started(stand, f"#!/bin/sh\n{writes}\n", "Succeeded")
        native.apply(pod("writer", writes))
        native.run("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/writer", "--timeout=120s")
        kubectl = Kubectl(stand.bed.places, NAMESPACE)
        yield Trial(
            lambda: read_twice(kubectl, NAMESPACE, companion.pod_name),
            lambda: read_twice(native, "bench-virtual-log", "writer"),
        )


def read_twice(kubectl: Kubectl, namespace: str, pod: str) -> Mapping[str, float]:
    seen, lost = {}, 0
    for figure, command in (
        ("virtual-log-api", ("get", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod}/log")),
        ("virtual-log-throughput", ("logs", pod)),
    ):
        with kubectl.reading(*command) as reader:
            assert reader.stdout
            received, took = drain(reader.stdout.fileno())
        seen[figure] = received / 1e6 / took
        lost += MEGABYTES * 1_000_000 - received
    return {**seen, "virtual-log-lost": float(lost)}


def started(stand: Stand, script: str, phase: str = "Running") -> Companion:
    companion = stand.submit(script)
    companion.reaches(phase)
    return companion
