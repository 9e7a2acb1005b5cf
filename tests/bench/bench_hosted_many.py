"""Hosted Slurm with many workers, or in many namespaces: the whole operator, simulated Kubernetes and Slurm.

The operator is a process of its own, connected by TLS to both. Its pods are ready as soon as it makes them,
each with a Node whose kubelet writes a heartbeat every 5 minutes. Half of the workers have a job.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.bench_virtual_scale import processor_seconds, resident
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.rows import Figure, Target
from tests.ports import free_port

MANY, FEW = sized(1_000, 200), 30
NAMESPACES, OF_A_NAMESPACE = sized(50, 10), 20
BUSY = 0.5
IDLE_S = sized(120.0, 60.0)
SETTLES_S = 30.0
CHANGES = 5
ENDS_WITHIN_S = 20.0
RELEASE = "26.05"
NOTES: Mapping[str, str | float] = {"slurm": f"{RELEASE}, simulated", "idle_s": IDLE_S, "busy": BUSY}


@dataclass(frozen=True)
class Many:
    """The simulated world, and the operator in it."""

    world: subprocess.Popen[str]
    operator: subprocess.Popen[bytes]

    def ask(self, do: str, **arguments: object) -> dict[str, Any]:
        assert self.world.stdin
        assert self.world.stdout
        self.world.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.world.stdin.flush()
        answer = self.world.stdout.readline()
        if not answer:
            raise RuntimeError(f"the simulated world has ended, asked to {do}")
        read: dict[str, Any] = json.loads(answer)
        return read

    def idle(self, prefix: str) -> dict[str, float]:
        """Of a minute in which nothing changes."""
        before, cpu, began = self.ask("count"), processor_seconds(self.operator.pid), time.perf_counter()
        time.sleep(IDLE_S)
        took = time.perf_counter() - began
        after = self.ask("count")
        minutes = took / 60
        return {
            f"{prefix}-memory": resident(self.operator.pid),
            f"{prefix}-cpu": (processor_seconds(self.operator.pid) - cpu) / took * 100,
            f"{prefix}-requests": (_requests(after["api"]) - _requests(before["api"])) / minutes,
            f"{prefix}-rpcs": (sum(after["rpcs"].values()) - sum(before["rpcs"].values())) / minutes,
        }


def _requests(counts: Mapping[str, int]) -> int:
    """To the API server, but for the Leases."""
    return sum(count for name, count in counts.items() if not name.endswith(" Lease"))


@contextmanager
def many(namespaces: int, workers: int) -> Iterator[Many]:
    """Settled: all pods are made, and all nodes are idle or have a job."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "operator.log").open("w+b") as log:
        command = [sys.executable, "-m", "tests.bench.many.world", folder, str(namespaces), str(workers)]
        world = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert world.stdout
            served = json.loads(world.stdout.readline())["namespaces"]
            made = Many(world, operator_of(Path(folder), served, log))
            try:
                made.ask("settle")
                made.ask("occupy", share=BUSY)
                time.sleep(SETTLES_S)
                made.ask("settle")
                yield made
            except RuntimeError as error:
                log.seek(0)
                raise RuntimeError(f"{error}; the operator's log ends with {log.read()[-1000:]!r}") from error
            finally:
                _end(made.operator)
        finally:
            _end(world)


def operator_of(folder: Path, namespaces: list[str], log: Any) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "KUBECONFIG": str(folder / "kubeconfig"),
        "REDBOX_NAMESPACE": "redbox-system",
        "REDBOX_SERVE_NAMESPACES": ",".join(namespaces),
        "REDBOX_SLURM_IMAGE": f"registry.example.org/slurm:{RELEASE}",
        "REDBOX_READS_NODES": "true",
        "REDBOX_HEALTH_PORT": str(free_port()),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "redbox_hosting", "run"], env=environment, stdout=log, stderr=log
    )


def _end(process: subprocess.Popen[Any]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


POD, DRAIN = "hosted-many-pod", "hosted-many-drain"


@benchmark(
    Figure(
        POD,
        f"replicas {MANY:,} -> one more: its pod is made, its status written",
        "s",
        Target("value", "<=", 0.5),
    ),
    Figure(
        DRAIN, f"{MANY:,} workers: annotation pod-cordon -> DRAIN in Slurm", "s", Target("value", "<=", 0.5)
    ),
    Figure("hosted-many-memory", f"resident memory, {MANY:,} workers", "MiB", Target("value", "<=", 150)),
    Figure(
        "hosted-many-cpu", f"CPU while nothing changes, {MANY:,} workers", "% CPU", Target("value", "<=", 5)
    ),
    Figure(
        "hosted-many-requests",
        f"requests to the API server while nothing changes, {MANY:,} workers",
        "requests/min",
    ),
    Figure(
        "hosted-many-rpcs",
        f"requests to slurmrestd while nothing changes, {MANY:,} workers",
        "RPCs/min",
        Target("value", "<=", 12),
    ),
    takes_s=600,
    rounds=1,
    warm_up=False,
    baseline_name=f"the same with {FEW} workers",
    needs_bed=False,
)
@contextmanager
def hosted_many_workers(_: object) -> Iterator[Trial]:
    yield Trial(lambda: measured(MANY), lambda: measured(FEW), notes=NOTES)


def measured(workers: int) -> dict[str, float]:
    with many(1, workers) as it:
        idle = it.idle("hosted-many")
        grown = [it.ask("grow") for _ in range(CHANGES)]
        it.ask("settle")
        drained = [it.ask("cordon") for _ in range(CHANGES)]
    return {
        **idle,
        POD: median(max(each.values()) for each in grown),
        DRAIN: median(each["drain"] for each in drained),
    }


@benchmark(
    Figure("hosted-many-few-memory", f"resident memory, {FEW} workers", "MiB", Target("value", "<=", 80)),
    Figure(
        "hosted-many-few-cpu",
        f"CPU while nothing changes, {FEW} workers",
        "% CPU",
        Target("value", "<=", 0.5),
    ),
    Figure(
        "hosted-many-few-requests",
        f"requests to the API server beside the Lease, {FEW} workers",
        "requests/min",
        Target("value", "<=", 12),
    ),
    Figure(
        "hosted-many-few-rpcs",
        f"requests to slurmrestd, {FEW} workers",
        "RPCs/min",
        Target("value", "<=", 12),
    ),
    takes_s=330,
    rounds=1,
    warm_up=False,
    baseline_name="the same without a worker",
    needs_bed=False,
)
@contextmanager
def hosted_many_few(_: object) -> Iterator[Trial]:
    yield Trial(lambda: idle_with(1, FEW, "few"), lambda: idle_with(1, 0, "few"), notes=NOTES)


@benchmark(
    Figure(
        "hosted-many-spaces-memory",
        f"resident memory, {NAMESPACES} namespaces of {OF_A_NAMESPACE} workers",
        "MiB",
        Target("value", "<=", 150),
    ),
    Figure(
        "hosted-many-spaces-cpu",
        f"CPU while nothing changes, {NAMESPACES} namespaces of {OF_A_NAMESPACE} workers",
        "% CPU",
        Target("value", "<=", 5),
    ),
    Figure(
        "hosted-many-spaces-requests",
        f"requests to the API server beside the Leases, {NAMESPACES} namespaces",
        "requests/min",
    ),
    Figure("hosted-many-spaces-rpcs", f"requests to slurmrestd, {NAMESPACES} namespaces", "RPCs/min"),
    takes_s=420,
    rounds=1,
    warm_up=False,
    baseline_name="the same with one namespace",
    needs_bed=False,
)
@contextmanager
def hosted_many_namespaces(_: object) -> Iterator[Trial]:
    yield Trial(
        lambda: idle_with(NAMESPACES, OF_A_NAMESPACE, "spaces"),
        lambda: idle_with(1, OF_A_NAMESPACE, "spaces"),
        notes=NOTES,
    )


def idle_with(namespaces: int, workers: int, name: str) -> dict[str, float]:
    with many(namespaces, workers) as it:
        return it.idle(f"hosted-many-{name}")
