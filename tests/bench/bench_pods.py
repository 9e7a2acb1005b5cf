"""Pods on Slurm.

The baseline is a SlurmJob with virtual delivery and the same script. A pod is accepted once its condition
shows the job in Slurm; a native pod once its kubelet has started with it.

For comparison, interLink f6321757 with Slurm plugin f8451d9 on a similar machine (two cores, Slurm 22.05, no
containers started): 5.5 of 100 simultaneous pods a second reached Slurm; the median end of 20 pods was shown
101 s late, and a log line after 2.0 s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

from redbox_bed.bed import Bed
from tests.bench.account import accounting
from tests.bench.bench_account import (
    CPU,
    MANY,
    OF_A_SLURM_JOB,
    OWN,
    figures,
    notes,
    shown,
    warm_up,
    whole_lives,
)
from tests.bench.bench_slurm import USER, clear
from tests.bench.bench_slurmjobs import both
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.kubectl import Kubectl
from tests.bench.pod_lives import NATIVE, ON_SLURM, SLURM_JOB, STAMP, Kind, Life, Lives, stamps
from tests.bench.rows import Figure, Target, percentile
from tests.bench.virtual_jobs import administrator
from tests.e2e.harness.slurm_pods import pods_enabled

SINGLE = sized(20, 5)
AT_ONCE = sized(100, 20)
FEW = sized(10, 2)
LINES = sized(60, 20)
RUNS_S = 3
TRUE = "true"
TELLS = f"{STAMP}; sleep {RUNS_S}; {STAMP}"
WRITES = f"sleep 5; i=0; while [ $i -lt {LINES} ]; do {STAMP}; sleep 0.2; i=$((i+1)); done"
LOOK_S = 1.2  # jobs.shortest_interval_s, and the reads of reports are more frequent
BEGINS_WITHIN_S = 60
A_SLURM_JOB = "a SlurmJob"
BEHIND = Target("value", "<=", LOOK_S / 2 + 0.4)


@dataclass(frozen=True)
class Lag:
    """Seconds: until it was shown to run, and how late its begin and its end were shown."""

    running: float
    begin: float
    end: float


@dataclass(frozen=True)
class Sides:
    """Red Box with pods and virtual delivery, and Kubernetes as it is."""

    bed: Bed
    alice: Kubectl
    native: Kubectl

    def lives(self, kind: Kind, script: str, count: int, until: str = "accepted") -> list[Life]:
        """Make so many, see them as far as that, and delete them."""
        try:
            return list(self.see(kind, script, count, until).values())
        finally:
            self.delete(kind)

    def see(self, kind: Kind, script: str, count: int, until: str) -> dict[str, Life]:
        """By name; they are not deleted."""

        async def run() -> dict[str, Life]:
            async with administrator(self.bed.places.kubeconfig) as objects:
                return await Lives(objects, kind).run(script, count, until=until)

        return asyncio.run(run())

    def lags(self, kind: Kind, count: int) -> list[Lag]:
        """Of each, once it has ended."""
        try:
            lives = self.see(kind, TELLS, count, "ended")
            return [_lag(life, stamps(self.log(kind, name))) for name, life in lives.items()]
        finally:
            self.delete(kind)

    def log(self, kind: Kind, name: str) -> str:
        return self.of(kind).run("logs", name + kind.pod_suffix)

    def of(self, kind: Kind) -> Kubectl:
        return self.native if kind is NATIVE else replace(self.alice, namespace=kind.where.namespace)

    def delete(self, kind: Kind) -> None:
        self.of(kind).run("delete", kind.where.kind.name.lower(), "--all", "--timeout=170s", timeout=180)


def _lag(life: Life, told: Sequence[float]) -> Lag:
    if len(told) != len(("begin", "end")):
        raise RuntimeError(f"a log has {len(told)} times in place of 2")
    begun, ended = told
    return Lag(life.begun - life.asked, life.begun - begun, life.ended - ended)


@contextmanager
def standing(bed: Bed) -> Iterator[Sides]:
    clear(bed)
    with both(bed) as (alice, native), pods_enabled(bed):
        sides = Sides(bed, alice, native)
        for kind in (ON_SLURM, SLURM_JOB, NATIVE):  # the agent runs, and all is loaded
            sides.lives(kind, TRUE, 1, "ended")
        try:
            yield sides
        finally:
            sides.delete(ON_SLURM)
            clear(bed)


@contextmanager
def nodes_occupied(bed: Bed) -> Iterator[None]:
    """Another job has all nodes: what is submitted waits."""
    login = bed.host("login")
    nodes = login.run("sinfo", "-h", "-p", "debug", "-o", "%D").stdout.split()[0]
    options = ("--parsable", "--exclusive", f"--nodes={nodes}", "--output=/dev/null", "--wrap=sleep 1500")
    job_id = login.run("sbatch", *options, user=USER).stdout.strip()
    try:
        deadline = time.monotonic() + BEGINS_WITHIN_S
        while "R" not in login.run("squeue", "-h", "-o", "%t", f"--jobs={job_id}").stdout.split():
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job_id} does not get all nodes")
            time.sleep(0.5)
        yield
    finally:
        login.run("scancel", job_id)


@benchmark(
    Figure(
        "pod-accepted-p50",
        "a pod is created -> accepted: median",
        "s",
        Target("value", "<=", 0.3),
    ),
    Figure("pod-accepted-p99", "the same: 99th percentile", "s"),
    Figure("pod-accepted-p50-native", "a native pod is created -> accepted: median", "s"),
    Figure(
        "pods-submit-rate",
        f"{AT_ONCE} simultaneous pods: accepted",
        "pods/s",
        Target("ratio", ">=", 1.5),
    ),
    Figure("pods-submit-p50", "the same: time of each, median", "s"),
    Figure(
        "pods-submit-rate-native",
        f"{AT_ONCE} simultaneous native pods: accepted",
        "pods/s",
    ),
    takes_s=630,
    short_s=150,
    rounds=3,
    warm_up=False,
    baseline_name=A_SLURM_JOB,
    within=standing,
)
@contextmanager
def pod_submits(sides: Sides) -> Iterator[Trial]:
    with nodes_occupied(sides.bed):

        def submit(kind: Kind) -> dict[str, float]:
            alone = [_accepted(life) for _ in range(SINGLE) for life in sides.lives(kind, TRUE, 1)]
            lives = sides.lives(kind, TRUE, AT_ONCE)
            whole = max(life.accepted for life in lives) - min(life.asked for life in lives)
            return {
                "pod-accepted-p50": median(alone),
                "pod-accepted-p99": percentile(alone, 99),
                "pods-submit-rate": AT_ONCE / whole,
                "pods-submit-p50": median(map(_accepted, lives)),
            }

        yield Trial(
            lambda: {**submit(ON_SLURM), **of_natives(submit(NATIVE))},
            lambda: submit(SLURM_JOB),
            notes={"alone_per_round": SINGLE, "at_once": AT_ONCE},
        )


def _accepted(life: Life) -> float:
    return life.accepted - life.asked


def of_natives(measured: Mapping[str, float]) -> dict[str, float]:
    return {f"{name}-native": value for name, value in measured.items()}


@benchmark(
    Figure("pod-running-p50", "a pod is created -> Running: median", "s"),
    Figure("pod-running-p50-native", "the same of a native pod", "s"),
    Figure("pod-begin-lag", "its script begins -> Running: median", "s", BEHIND),
    Figure("pod-begin-lag-native", "the same of a native pod", "s"),
    Figure("pod-end-lag", "its script ends -> final phase: median", "s", BEHIND),
    Figure("pod-end-lag-native", "the same of a native pod", "s"),
    Figure(
        "pod-line-p50",
        "log line -> kubectl logs -f: median",
        "ms",
        Target("value", "<=", 300),
    ),
    Figure("pod-line-p99", "the same: 99th percentile", "ms"),
    Figure("pod-line-p50-native", "the same of a native pod: median", "ms"),
    takes_s=810,
    short_s=120,
    rounds=2,
    warm_up=False,
    baseline_name=A_SLURM_JOB,
    within=standing,
)
@contextmanager
def pod_life(sides: Sides) -> Iterator[Trial]:
    def alone(kind: Kind) -> dict[str, float]:
        seen = [lag for _ in range(FEW) for lag in sides.lags(kind, 1)]
        lines = line_latencies(sides, kind)
        return {
            "pod-running-p50": median(lag.running for lag in seen),
            "pod-begin-lag": median(lag.begin for lag in seen),
            "pod-end-lag": median(lag.end for lag in seen),
            "pod-line-p50": percentile(lines, 50),
            "pod-line-p99": percentile(lines, 99),
        }

    yield Trial(
        lambda: {**alone(ON_SLURM), **of_natives(alone(NATIVE))},
        lambda: alone(SLURM_JOB),
        notes={"pods_per_round": FEW, "runs_s": RUNS_S, "lines_per_round": LINES},
    )


def line_latencies(sides: Sides, kind: Kind) -> list[float]:
    """Milliseconds of each line, which is the time at which it was written."""
    try:
        (name,) = sides.see(kind, WRITES, 1, "begun")
        with sides.of(kind).reading("logs", "--follow", name + kind.pod_suffix) as follower:
            assert follower.stdout
            read = ((time.time(), line.decode()) for line in follower.stdout)
            seen = [(now - written) * 1000 for now, line in read for written in stamps(line)]
    finally:
        sides.delete(kind)
    if len(seen) != LINES:
        raise RuntimeError(f"{len(seen)} lines came of {LINES}")
    return seen


@benchmark(
    Figure("pods-begin-lag", f"{AT_ONCE} simultaneous pods: script begins -> Running, median", "s"),
    Figure("pods-begin-lag-native", "the same of native pods", "s"),
    Figure("pods-end-lag", f"{AT_ONCE} simultaneous pods: script ends -> final phase, median", "s"),
    Figure("pods-end-lag-native", "the same of native pods", "s"),
    Figure("pods-end-lag-most", "the same: the last pod", "s"),
    takes_s=600,
    rounds=1,
    warm_up=False,
    baseline_name=f"{AT_ONCE} SlurmJobs",
    within=standing,
)
@contextmanager
def pods_lags_at_once(sides: Sides) -> Iterator[Trial]:
    def many(kind: Kind) -> dict[str, float]:
        seen = sides.lags(kind, AT_ONCE)
        return {
            "pods-begin-lag": median(lag.begin for lag in seen),
            "pods-end-lag": median(lag.end for lag in seen),
            "pods-end-lag-most": max(lag.end for lag in seen),
        }

    yield Trial(lambda: {**many(ON_SLURM), **of_natives(many(NATIVE))}, lambda: many(SLURM_JOB))


ACCOUNT = "account-pod"


def account_figures() -> tuple[Figure, ...]:
    """Those of a SlurmJob; Red Box's own CPU has a target."""
    of_all = figures(ACCOUNT, "one pod on Slurm", "pods/s", (*OF_A_SLURM_JOB, "resourced"))
    target = Target("ratio", "<=", 1)
    own = Figure(f"{ACCOUNT}-cpu-own", f"one pod on Slurm: CPU of {CPU['own']}", "ms", target)
    return (own, *(figure for figure in of_all if figure.name != own.name))


@benchmark(
    *account_figures(),
    takes_s=400,
    rounds=1,
    warm_up=False,
    baseline_name=A_SLURM_JOB,
    within=standing,
)
@contextmanager
def account_pod(sides: Sides) -> Iterator[Trial]:
    """The runner and Apptainer are in the line of the compute hosts, as the script of a SlurmJob is."""
    with accounting(sides.bed) as accountant:
        warm_up(sides.alice)

        def live() -> float:
            sides.see(ON_SLURM, TRUE, MANY, "ended")
            return MANY

        def whole_pods() -> Mapping[str, float]:
            cost = accountant.of(live, OWN["virtual"])
            sides.delete(ON_SLURM)
            return shown(ACCOUNT, cost)

        yield Trial(
            whole_pods,
            lambda: shown(ACCOUNT, whole_lives(accountant, sides.alice, "virtual")),
            notes=notes(),
        )
