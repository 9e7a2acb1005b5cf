"""Kubernetes without Red Box."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role
from tests.bench.benchmark import Trial, benchmark
from tests.bench.kubectl import Kubectl, pod
from tests.bench.rows import Figure, percentile

LINES = 100
LINE = b"x" * 99 + b"\n"
MEGABYTES = 50
EXPECTED_LINES = MEGABYTES * 1_000_000 // len(LINE)
STARTS_WITHIN_S = 60


@contextmanager
def namespace(bed: Bed, name: str) -> Iterator[Kubectl]:
    """Have a namespace for one benchmark; deleting it ends all that the benchmark started."""
    kubectl = Kubectl(bed.places, name)
    kubectl.run("delete", "namespace", name, "--ignore-not-found", timeout=180)
    kubectl.run("create", "namespace", name)
    try:
        kubectl.run("wait", "--for=create", "serviceaccount/default", f"--timeout={STARTS_WITHIN_S}s")
        yield kubectl
    finally:
        kubectl.run("delete", "namespace", name, timeout=180)


def read_until(stream: IO[bytes], wanted: bytes) -> None:
    for line in stream:
        if line.rstrip() == wanted:
            return
    raise RuntimeError(f"the output ended before {wanted.decode()!r} was seen")


@benchmark(Figure("pod-start", "kubectl apply of a pod -> Running", "s"), rounds=7, takes_s=45)
@contextmanager
def pod_start(bed: Bed) -> Iterator[Trial]:
    phases = 'jsonpath={.object.metadata.name} {.object.status.phase}{"\\n"}'
    with namespace(bed, "bench-pod-start") as kubectl:

        def measure() -> Mapping[str, float]:
            with kubectl.reading("get", "pods", "--watch", "--output-watch-events", "-o", phases) as watch:
                assert watch.stdout
                started = time.perf_counter()
                kubectl.apply(pod("started", "sleep 3600"))
                read_until(watch.stdout, b"started Running")
                took = time.perf_counter() - started
            kubectl.delete_pod("started")
            return {"pod-start": took}

        yield Trial(measure)


@benchmark(
    Figure("kubectl-logs-latency-p50", "log line -> kubectl logs -f: median", "ms"),
    Figure("kubectl-logs-latency-p99", "log line -> kubectl logs -f: 99th percentile", "ms"),
    takes_s=60,
)
@contextmanager
def kubectl_logs_latency(bed: Bed) -> Iterator[Trial]:
    """Feed a pod's `cat` through a named pipe on its node, so that both ends are stamped by one clock."""
    node = bed.plan.of_role(Role.NODE)[0].name
    shared = "/tmp/bench-kubectl-logs"
    bed.host(node).run("sh", "-c", f"mkdir -p {shared} && rm -f {shared}/lines && mkfifo {shared}/lines")
    volume = {"name": "shared", "hostPath": {"path": shared}}
    with namespace(bed, "bench-logs-latency") as kubectl:
        kubectl.apply(pod("echo", "exec cat /shared/lines", nodeName=node, volumes=[volume]))
        kubectl.run(
            "wait", "--for=jsonpath={.status.phase}=Running", "pod/echo", f"--timeout={STARTS_WITHIN_S}s"
        )
        with (
            Path(f"/proc/{bed.host(node).pid()}/root{shared}/lines").open("wb", buffering=0) as lines,
            kubectl.reading("logs", "--follow", "echo") as follower,
        ):
            yield Trial(lambda: line_latencies(lines, follower), notes={"lines_per_round": LINES})
    bed.host(node).run("rm", "-rf", shared)


def line_latencies(lines: IO[bytes], follower: subprocess.Popen[bytes]) -> Mapping[str, float]:
    assert follower.stdout
    latencies = []
    for number in range(LINES):
        line = f"{time.time_ns()} {number}".encode()
        started = time.perf_counter()
        lines.write(line + b"\n")
        read_until(follower.stdout, line)
        latencies.append((time.perf_counter() - started) * 1000)
        time.sleep(0.02)  # lines that come alone are what is measured
    return {
        "kubectl-logs-latency-p50": percentile(latencies, 50),
        "kubectl-logs-latency-p99": percentile(latencies, 99),
    }


@benchmark(
    Figure(
        "kubectl-logs-throughput",
        f"kubectl logs -f of {MEGABYTES} MB of 100-byte lines",
        "MB/s",
    ),
    Figure(
        "kubectl-logs-lost",
        "lines lost by the kubelet's log rotation",
        "lines",
    ),
    takes_s=140,
    rounds=3,
)
@contextmanager
def kubectl_logs_throughput(bed: Bed) -> Iterator[Trial]:
    script = f"sleep 1; yes {LINE.decode().strip()} | head -c {len(LINE) * EXPECTED_LINES}"
    with namespace(bed, "bench-logs-throughput") as kubectl:

        def measure() -> Mapping[str, float]:
            kubectl.apply(pod("writer", script))
            kubectl.run(
                "wait",
                "--for=jsonpath={.status.phase}=Running",
                "pod/writer",
                f"--timeout={STARTS_WITHIN_S}s",
            )
            with kubectl.reading("logs", "--follow", "writer") as follower:
                assert follower.stdout
                received, took = drain(follower.stdout.fileno())
            kubectl.delete_pod("writer")
            return {
                "kubectl-logs-throughput": received / 1e6 / took,
                "kubectl-logs-lost": EXPECTED_LINES - received / len(LINE),
            }

        yield Trial(measure)


def drain(descriptor: int) -> tuple[int, float]:
    """Read to the end; return how many bytes came, and in how many seconds from the first of them on."""
    received = len(os.read(descriptor, 1 << 20))
    started = time.perf_counter()
    while read := os.read(descriptor, 1 << 20):
        received += len(read)
    return received, time.perf_counter() - started
