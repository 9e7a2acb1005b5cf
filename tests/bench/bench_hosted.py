"""Slurm clusters in Kubernetes.

Slurm 26.05 in pods, without accounting. Workers have 512 MiB and no limit of CPU. Nodes are idle when the
NodeSet's status says so, and pods are gone when a watch says so. The operator reads an idle Slurm three times
a minute, and each drain comes at another moment of that interval.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.hosted import (
    LIMITS,
    RELEASE,
    Hosted,
    rpcs,
    scale_in,
    scale_out,
    until_drain_is,
    until_in_service,
    until_settled,
    until_slurm_says,
    with_hosting,
)
from tests.bench.rows import Figure, Target
from tests.e2e.harness.hosted_slurm import CLUSTER, NAMESPACE, HostedSlurm, applied_slurm
from tests.e2e.harness.waiting import eventually

BARE_PODS = "bare pods of the same image and size, created in one command, until all are ready"
FEW, MANY, LEFT = 3, 30, 3
DAEMONS = 2
"""slurmctld and control."""
SHRINKING = 20
COUNTS = (10, SHRINKING, MANY)
OUT, IN = "hosted-scale-out", "hosted-scale-in"
WRITES_OUT, WRITES_IN = "hosted-writes-out", "hosted-writes-in"
SETTLES_S = 3.0
IDLE_S = sized(60.0, 30.0)
READ_EACH_S = 20.0
"""How often the operator reads a Slurm in which nothing is awaited."""
NOTES = {"slurm": RELEASE, "memory_of_a_worker": LIMITS["memory"]}


@benchmark(
    Figure(
        "hosted-from-nothing",
        f"apply of a Controller and a NodeSet of {FEW} -> all nodes idle",
        "s",
        Target("value", "<=", 15),
    ),
    takes_s=180,
    rounds=3,
    warm_up=False,
    baseline_name=BARE_PODS,
    within=with_hosting,
)
@contextmanager
def hosted_from_nothing(hosted: Hosted) -> Iterator[Trial]:
    def measure() -> Mapping[str, float]:
        started = time.perf_counter()
        with applied_slurm(hosted.bed, hosted.kubernetes, FEW, LIMITS) as slurm:
            until_in_service(slurm, FEW)
            took = time.perf_counter() - started
        until_nothing_is_left(hosted)
        return {"hosted-from-nothing": took}

    def bare() -> Mapping[str, float]:
        took = hosted.create_bare(FEW + DAEMONS)
        hosted.delete_bare(range(FEW + DAEMONS))
        return {"hosted-from-nothing": took}

    yield Trial(measure, bare, notes={**NOTES, "bare_pods": FEW + DAEMONS})


def until_nothing_is_left(hosted: Hosted) -> None:
    """Of a cluster that was deleted: its name is free again."""
    kinds = ("pod", "secret", "service")
    eventually(
        lambda: not any(hosted.kubernetes.list(kind, NAMESPACE) for kind in kinds),
        what="the end of all objects",
    )


@contextmanager
def slurm_of(hosted: Hosted, replicas: int) -> Iterator[HostedSlurm]:
    """A cluster in which nothing happens."""
    with applied_slurm(hosted.bed, hosted.kubernetes, replicas, LIMITS) as slurm:
        until_in_service(slurm, replicas)
        eventually(slurm.is_ready, what="Ready")
        until_settled(slurm)
        yield slurm
    until_nothing_is_left(hosted)


@benchmark(
    *(
        Figure(
            f"{OUT}-{count}",
            f"0 -> {count} workers, all nodes idle",
            "s",
            Target("value", "<=", 12) if count == MANY else None,
        )
        for count in COUNTS
    ),
    Figure(
        WRITES_OUT,
        f"0 -> {MANY} workers: writes of the operator to the API server, for each pod",
        "writes",
        Target("value", "<=", 4),
    ),
    Figure(IN, f"{SHRINKING} -> {LEFT} idle workers, pods gone", "s", Target("value", "<=", 8)),
    Figure(
        WRITES_IN,
        f"{SHRINKING} -> {LEFT} idle workers: writes of the operator to the API server, for each pod",
        "writes",
        Target("value", "<=", 4),
    ),
    Figure(
        "hosted-memory", f"the operator's resident memory, {MANY} workers", "MiB", Target("value", "<=", 80)
    ),
    Figure(
        "hosted-cpu",
        f"the operator's CPU while nothing changes, {MANY} workers",
        "% CPU",
        Target("value", "<=", 0.5),
    ),
    Figure(
        "hosted-rpcs",
        f"RPCs to slurmctld while nothing changes, {MANY} workers",
        "RPCs/min",
        Target("value", "<=", 12),
    ),
    takes_s=600,
    rounds=3,
    warm_up=False,
    baseline_name=BARE_PODS,
    within=with_hosting,
)
@contextmanager
def hosted_scale(hosted: Hosted) -> Iterator[Trial]:
    with slurm_of(hosted, 0) as slurm:
        yield Trial(
            lambda: scaled(hosted, slurm), lambda: bare_scaled(hosted), notes={**NOTES, "idle_s": IDLE_S}
        )


def scaled(hosted: Hosted, slurm: HostedSlurm) -> dict[str, float]:
    took: dict[str, float] = {}
    for count in COUNTS:
        before = settled_writes(hosted)
        took[f"{OUT}-{count}"] = scale_out(slurm, count)
        after = settled_writes(hosted)
        left = count
        if count == MANY:
            took[WRITES_OUT] = (after - before) / count
            took |= idle(hosted, slurm)
        elif count == SHRINKING:
            took[IN], left = scale_in(slurm, count, LEFT), LEFT
            took[WRITES_IN] = (settled_writes(hosted) - after) / (count - LEFT)
        scale_in(slurm, left, 0)
    return took


def settled_writes(hosted: Hosted) -> float:
    """With those that an act leaves to do, such as deadlines and the status."""
    time.sleep(SETTLES_S)
    return hosted.writes()


def bare_scaled(hosted: Hosted) -> dict[str, float]:
    took: dict[str, float] = {}
    for count in COUNTS:
        took[f"{OUT}-{count}"] = hosted.create_bare(count)
        left = count
        if count == SHRINKING:
            took[IN], left = hosted.delete_bare(range(LEFT, count)), LEFT
        hosted.delete_bare(range(left))
    return took


def idle(hosted: Hosted, slurm: HostedSlurm) -> dict[str, float]:
    asked, cpu, started = rpcs(slurm), hosted.operator_cpu_s(), time.perf_counter()
    time.sleep(IDLE_S)
    took, used = time.perf_counter() - started, hosted.operator_cpu_s() - cpu
    own = 1  # the first sdiag, which its own answer does not count
    return {
        "hosted-memory": hosted.operator_memory_mib(),
        "hosted-cpu": used / took * 100,
        "hosted-rpcs": (rpcs(slurm) - asked - own) * 60 / took,
    }


CONFIGURATION, DISTURBED, GONE, DRAIN = (
    "hosted-configuration",
    "hosted-configuration-jobs",
    "hosted-gone",
    "hosted-drain",
)
time_slices = itertools.count(31)


@benchmark(
    Figure(CONFIGURATION, "change of extraConf -> slurmctld runs it", "s", Target("value", "<=", 12)),
    Figure(DISTURBED, f"of {FEW} jobs, those that it disturbed", "jobs", Target("value", "<=", 0)),
    Figure(
        GONE,
        f"{2 * FEW} -> {2 * FEW - 1} workers, {FEW} of them with a job: an idle pod gone",
        "s",
        Target("value", "<=", 5),
    ),
    Figure(DRAIN, "scontrol update state=drain -> condition of the pod", "s", Target("value", "<=", 2)),
    takes_s=360,
    rounds=5,
    warm_up=False,
    baseline_name="a bare pod of the same image and size, deleted by kubectl",
    within=with_hosting,
)
@contextmanager
def hosted_changes(hosted: Hosted) -> Iterator[Trial]:
    """As many workers with a job as without: each job has its worker to itself."""
    with slurm_of(hosted, 2 * FEW) as slurm:
        jobs = [slurm.submit("sleep 3600", "--mem=64") for _ in range(FEW)]
        busy = {slurm.reaches(job, "RUNNING")["NodeList"] for job in jobs}
        (drained, *_) = sorted(slurm.workers().keys() - busy)

        def measure() -> Mapping[str, float]:
            configured = configuration(slurm)
            gone = scale_in(slurm, 2 * FEW, 2 * FEW - 1)
            disturbed = sum(is_disturbed(slurm, job) for job in jobs)
            scale_out(slurm, 2 * FEW)
            shown = drain(slurm, drained)
            return {CONFIGURATION: configured, DISTURBED: disturbed, GONE: gone, DRAIN: shown}

        def bare() -> Mapping[str, float]:
            hosted.create_bare(1)
            return {GONE: hosted.delete_bare(range(1))}

        try:
            yield Trial(measure, bare, notes=NOTES)
        finally:
            slurm.run("scancel", *jobs)


def configuration(slurm: HostedSlurm) -> float:
    """Seconds until slurmctld itself says so."""
    value = next(time_slices)
    started = time.perf_counter()
    slurm.change("controller", CLUSTER, {"extraConf": f"SchedulerTimeSlice={value}"})
    until_slurm_says(slurm, "scontrol show config", f"^SchedulerTimeSlice *= {value} sec")
    took = time.perf_counter() - started
    eventually(slurm.is_ready, what="Ready")
    return took


def is_disturbed(slurm: HostedSlurm, job: str) -> bool:
    fields = slurm.job(job)
    return (fields["JobState"], fields["Restarts"]) != ("RUNNING", "0")


def drain(slurm: HostedSlurm, worker: str) -> float:
    """Seconds from the end of scontrol; then the node is in service again."""
    time.sleep(random.uniform(0, READ_EACH_S))
    slurm.run("scontrol", "update", f"nodename={worker}", "state=drain", "reason=bench")
    started = time.perf_counter()
    until_drain_is(slurm, worker, shown=True)
    took = time.perf_counter() - started
    slurm.run("scontrol", "update", f"nodename={worker}", "state=resume")
    until_drain_is(slurm, worker, shown=False)
    until_in_service(slurm, 2 * FEW)
    return took


REQUEUED, USABLE = "hosted-kill-requeued", "hosted-kill-usable"


@benchmark(
    Figure(REQUEUED, "first kill of a worker's container -> job requeued", "s", Target("value", "<=", 3)),
    Figure(USABLE, "first kill of a worker's container -> node idle", "s", Target("value", "<=", 6)),
    takes_s=150,
    rounds=3,
    warm_up=False,
    within=with_hosting,
)
@contextmanager
def hosted_kill(hosted: Hosted) -> Iterator[Trial]:
    with slurm_of(hosted, 1) as slurm:
        yield Trial(lambda: killed(hosted, slurm), notes=NOTES)


def killed(hosted: Hosted, slurm: HostedSlurm) -> dict[str, float]:
    """Each time another pod: the kubelet waits before it starts a container for the second time."""
    job = slurm.submit("sleep 3600", "--mem=64")
    worker = slurm.reaches(job, "RUNNING")["NodeList"]
    started = time.perf_counter()
    hosted.kill_container(worker)
    until_slurm_says(slurm, f"scontrol show job {job}", "Restarts=1 ")
    requeued = time.perf_counter() - started
    until_slurm_says(slurm, f"sinfo --noheader --nodes={worker} --format=%T", "^idle$")
    usable = time.perf_counter() - started
    slurm.run("scancel", job)
    scale_in(slurm, 1, 0)
    scale_out(slurm, 1)
    return {REQUEUED: requeued, USABLE: usable}
