"""CPU, writes, fsyncs and RPCs for one submit, SlurmJob, change of state and MB of log.

Each value is the difference to a quiet window of the same length, so small ones may be negative. Writes are
those to the API server. CPU is accurate to 0.2 ms.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import uuid4

from redbox_bed.bed import Bed
from tests.bench.account import SETTLES_S, TAIL_S, Accountant, accounting
from tests.bench.bench_redbox import BARE, redbox
from tests.bench.bench_slurm import USER, clear, on_login
from tests.bench.bench_slurmjobs import both, slurm_job
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.kubectl import Kubectl
from tests.bench.processor_time import Costs
from tests.bench.rows import Figure, Target
from tests.e2e.harness.virtual_chart import virtual_delivery

MANY = sized(50, 10)
SUBMITS = sized(200, 50)
MEGABYTES = {"container": sized(20, 5), "virtual": sized(100, 20)}
OWN = {
    "submit": ("agent", "redbox", "squeue"),
    "container": ("agent", "redbox", "squeue", "operator", "pods"),
    "virtual": ("agent", "redbox", "squeue", "operator", "resourced"),
}
"""Of Red Box, what has a share in it, and would not run without it: sbatch would."""
LINE = "x" * 99
LAST = "the-last-line"
FINAL = "Succeeded"
BLOCK = 1 << 20

CPU = {
    "own": "all of Red Box, with squeue and companion",
    "redbox": "red-box",
    "agent": "the agent",
    "operator": "the operator",
    "resourced": "resourced",
    "controllers": "operator and resourced",
    "pods": "the companion and its pod",
    "squeue": "squeue and sacct, run by red-box",
    "sbatch": "sbatch, run by the agent",
    "slurmctld": "slurmctld",
    "compute": "slurmd, its steps and the script",
    "apiserver": "the API server",
    "etcd": "etcd",
    "kube-others": "controller manager and scheduler",
    "kubelet": "kubelets",
    "containerd": "containerd, its shims and runc, kube-proxy",
    "all": "all processes on all hosts",
}
COUNTS = {
    "rpcs": ("RPCs to slurmctld", "RPCs"),
    "writes": ("writes to the API server", "writes"),
    "fsyncs-redbox": ("fsyncs of red-box", "fsyncs"),
    "fsyncs-slurmctld": ("fsyncs of slurmctld", "fsyncs"),
    "fsyncs-etcd": ("fsyncs of etcd", "fsyncs"),
}
OF_SLURM = ("own", "redbox", "agent", "squeue", "sbatch", "slurmctld", "all")
OF_KUBERNETES = ("operator", "apiserver", "etcd", "kube-others", "kubelet", "containerd")
OF_A_READER = ("own", "redbox", "agent", "apiserver", "kubelet", "containerd", "all")


CONTROLLERS_MS = Target("value", "<=", 13.3)
"""Of a SlurmJob's whole life: half of what it was at 1b8d8381, in turn with later versions."""


def figures(act: str, what: str, rate: str, parts: Sequence[str]) -> tuple[Figure, ...]:
    """One for each part, in the order of the account."""
    targets = {"account-virtual-cpu-controllers": CONTROLLERS_MS}
    cpu = (
        Figure(name, f"{what}: CPU of {CPU[part]}", "ms", targets.get(name))
        for part in CPU
        if part in parts
        for name in [f"{act}-cpu-{part}"]
    )
    counted = (
        Figure(f"{act}-{part}", f"{what}: {label}", unit)
        for part, (label, unit) in COUNTS.items()
        if part in parts
    )
    return (*cpu, *counted, Figure(f"{act}-rate", f"{what}: rate", rate))


def shown(act: str, cost: Mapping[str, float]) -> dict[str, float]:
    """As the figures are called."""
    named = {
        f"{act}-{part}" if part in {*COUNTS, "rate"} else f"{act}-cpu-{part}": cost[part] for part in cost
    }
    return {name: float(value) for name, value in named.items()}


SUBMIT = "account-submit"


@benchmark(
    *figures(SUBMIT, "one submit", "jobs/s", (*OF_SLURM, "rpcs", "fsyncs-redbox", "fsyncs-slurmctld")),
    takes_s=90,
    rounds=1,
    warm_up=False,
    baseline_name=BARE,
)
@contextmanager
def account_submit(bed: Bed) -> Iterator[Trial]:
    """A caller on the login host: its own CPU is in no line but the last."""
    with redbox(bed) as callers, accounting(bed) as accountant:
        callers.run("submit", count=SUBMITS, parallel=1)  # the agent runs, and all is loaded

        def put() -> float:
            callers.run("submit", count=SUBMITS, parallel=1)
            return SUBMITS

        def bare() -> Mapping[str, float]:
            """sbatch counts its own CPU: it is a child of what loads here."""
            used: list[float] = []

            def submit() -> float:
                used.append(on_login(bed, "submit.py", SUBMITS, 1)["cpu"])
                return SUBMITS

            cost = accountant.of(submit, OWN["submit"])
            cost["sbatch"] = used[0] * 1000 / SUBMITS
            baselines = {
                part: cost[part]
                for part in ("sbatch", "slurmctld", "all", "rpcs", "fsyncs-slurmctld", "rate")
            }
            return shown(SUBMIT, baselines)

        yield Trial(lambda: shown(SUBMIT, accountant.of(put, OWN["submit"])), bare, notes=notes(SUBMITS))


SUBMIT_32 = "account-submit-32"
CALLERS = 32
SUBMITS_32 = sized(600, 300)


@benchmark(
    Figure(
        f"{SUBMIT_32}-cpu",
        f"one submit, {CALLERS} callers: CPU of red-box and the agent, without sbatch",
        "ms",
        Target("value", "<=", 2),
    ),
    *(
        Figure(f"{SUBMIT_32}-cpu-{part}", f"one submit, {CALLERS} callers: CPU of {CPU[part]}", "ms")
        for part in ("redbox", "agent", "sbatch")
    ),
    takes_s=140,
    short_s=40,
    rounds=3,
    warm_up=False,
)
@contextmanager
def account_submit_32(bed: Bed) -> Iterator[Trial]:
    with redbox(bed) as callers:
        accountant = Accountant(bed, syncs=None)

        def put() -> float:
            callers.run("submit", count=SUBMITS_32, parallel=CALLERS)
            return SUBMITS_32

        def measure() -> dict[str, float]:
            clear(bed)
            cost = accountant.of(put, ("redbox", "agent"))
            of_parts = {f"{SUBMIT_32}-cpu-{part}": cost[part] for part in ("redbox", "agent", "sbatch")}
            return {f"{SUBMIT_32}-cpu": cost["own"], **of_parts}

        yield Trial(measure, notes={**notes(SUBMITS_32), "callers": CALLERS})


CONTAINER, VIRTUAL, CHANGE = "account-container", "account-virtual", "account-change"
LOG = {"container": "account-container-log", "virtual": "account-virtual-log"}
OF_A_SLURM_JOB = (*OF_SLURM, *OF_KUBERNETES, "compute", *COUNTS)


@benchmark(
    *figures(CONTAINER, "one SlurmJob, container delivery", "jobs/s", (*OF_A_SLURM_JOB, "pods")),
    *figures(LOG["container"], "one MB of log, container delivery", "MB/s", (*OF_A_READER, "pods")),
    takes_s=260,
    rounds=1,
    warm_up=False,
)
@contextmanager
def account_container(bed: Bed) -> Iterator[Trial]:
    with both(bed) as (jobs, _), accounting(bed) as accountant:
        warm_up(jobs)
        yield Trial(
            lambda: {
                **shown(CONTAINER, whole_lives(accountant, jobs, "container")),
                **shown(LOG["container"], log(accountant, jobs, "container")),
            },
            notes=notes(),
        )


@benchmark(
    *figures(
        VIRTUAL, "one SlurmJob, virtual delivery", "jobs/s", (*OF_A_SLURM_JOB, "resourced", "controllers")
    ),
    *figures(
        CHANGE,
        "one change of state, virtual delivery",
        "changes/s",
        (
            *("own", "redbox", "squeue", "operator", "resourced", "slurmctld", "apiserver", "etcd", "all"),
            *COUNTS,
        ),
    ),
    *figures(LOG["virtual"], "one MB of log, virtual delivery", "MB/s", (*OF_A_READER, "resourced")),
    takes_s=330,
    rounds=1,
    warm_up=False,
)
@contextmanager
def account_virtual(bed: Bed) -> Iterator[Trial]:
    with both(bed) as (jobs, _), virtual_delivery(bed), accounting(bed) as accountant:
        warm_up(jobs)
        yield Trial(
            lambda: {
                **shown(VIRTUAL, whole_lives(accountant, jobs, "virtual")),
                **shown(CHANGE, changes(accountant, jobs)),
                **shown(LOG["virtual"], log(accountant, jobs, "virtual")),
            },
            notes=notes(),
        )


def notes(acts: int = MANY) -> Mapping[str, str | float]:
    return {
        "acts": acts,
        "quiet": "a window of the same length is subtracted",
        "settles_s": SETTLES_S,
        "tail_s": TAIL_S,
    }


def warm_up(jobs: Kubectl) -> None:
    """The agent runs, images are there, and each controller has seen a job."""
    with watching(jobs) as wait:
        name = create(jobs, 1, "true")[0]
        wait({name}, FINAL)


def whole_lives(accountant: Accountant, jobs: Kubectl, delivery: str) -> Costs:
    """From the create until the SlurmJob has succeeded, all at once; they are deleted afterwards."""

    def live() -> float:
        with watching(jobs) as wait:
            wait(set(create(jobs, MANY, "true")), FINAL)
        return MANY

    cost = accountant.of(live, OWN[delivery])
    delete_all(jobs)
    return cost


def changes(accountant: Accountant, jobs: Kubectl) -> Costs:
    """Slurm suspends and resumes a running job; each is waited for until the SlurmJob shows it."""
    with watching(jobs) as wait:
        (name,) = create(jobs, 1, "sleep 3600")
        wait({name}, "Running")
        job_id = jobs.run("get", "slurmjob", name, "-o", "jsonpath={.status.jobID}")
        controller = accountant.bed.host("ctl")

        def change() -> float:
            for number in range(MANY):
                act, phase = ("resume", "Running") if number % 2 else ("suspend", "Suspended")
                controller.run("scontrol", act, job_id)
                wait({name}, phase)
            return MANY

        cost = accountant.of(change, OWN["virtual"])
    delete_all(jobs)
    return cost


def log(accountant: Accountant, jobs: Kubectl, delivery: str) -> Costs:
    """A job that runs is told to write, and kubectl follows its log to the last line."""
    megabytes = MEGABYTES[delivery]
    gate = f"/home/{USER}/bench-gate-{uuid4().hex[:8]}"
    writes = f"yes {LINE} | head -c {megabytes * 1_000_000}; echo {LAST}; sleep 3600"
    with watching(jobs) as wait:
        (name,) = create(jobs, 1, f"until [ -e {gate} ]; do sleep 0.5; done; {writes}")
        wait({name}, "Running")
    with jobs.reading("logs", "--follow", f"{name}-job") as follower:
        stream = follower.stdout
        assert stream

        def read() -> float:
            accountant.bed.host("login").run("touch", gate, user=USER)
            read_to_last_line(stream.fileno())
            return megabytes

        cost = accountant.of(read, OWN[delivery])
    delete_all(jobs)
    accountant.bed.host("login").run("rm", "-f", gate)
    return cost


def read_to_last_line(descriptor: int) -> None:
    end = b""
    while block := os.read(descriptor, BLOCK):
        end = (end + block)[-len(LAST) - 1 :]
        if end == f"{LAST}\n".encode():
            return
    raise RuntimeError("the log ended before its last line")


def create(jobs: Kubectl, count: int, script: str) -> list[str]:
    """SlurmJobs with new names, in one command."""
    names = [f"acc-{uuid4().hex[:8]}" for _ in range(count)]
    items = [slurm_job(name, script) for name in names]
    jobs.run(
        "create",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
        timeout=120,
    )
    return names


@contextmanager
def watching(jobs: Kubectl) -> Iterator[Callable[[set[str], str], None]]:
    """What waits until a watch has shown SlurmJobs in a phase: a watch costs less than looking again."""
    output = 'jsonpath={.object.metadata.name} {.object.status.phase}{"\\n"}'
    with jobs.reading("get", "slurmjobs", "--watch", "--output-watch-events", "-o", output) as watch:
        stream = watch.stdout
        assert stream

        def wait(names: set[str], phase: str) -> None:
            left = set(names)
            while left:
                line = stream.readline().decode()
                if not line:
                    raise RuntimeError(f"the watch ended before {len(left)} SlurmJobs were {phase}")
                name, _, shown_phase = line.strip().partition(" ")
                if shown_phase == phase:
                    left.discard(name)

        yield wait


def delete_all(jobs: Kubectl) -> None:
    jobs.run("delete", "slurmjobs", "--all", "--timeout=170s", timeout=180)
