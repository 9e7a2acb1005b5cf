"""SlurmJobs with container delivery, compared with native pods of the same script."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from redbox_bed.bed import Bed
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import deliver, take_away
from tests.bench.bench_kubernetes import (
    EXPECTED_LINES,
    LINE,
    MEGABYTES,
    drain,
    line_latencies,
    namespace,
)
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.kubectl import Kubectl, pod
from tests.bench.rows import Figure, Target
from tests.e2e.harness.redbox_server import end_red_box

MANY = sized(100, 40)
LABEL = {"app": "bench"}
MANY_WITHIN_S = 300
FIFO_FOLDER = "/tmp/bench-slurmjobs"
SLURM_NODE, KUBERNETES_NODE = "n1", "k1"
RUNNING = "jsonpath={.status.phase}=Running"
A_PODS = "a native pod"


def slurm_job(name: str, script: str, **spec: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"cluster": "hpc1", "batch": f"#!/bin/sh\n{script}\n", **spec}
    return {
        "apiVersion": "redbox.dev/v1alpha1",
        "kind": "SlurmJob",
        "metadata": {"name": name, "labels": LABEL},
        "spec": said,
    }


@contextmanager
def both(bed: Bed) -> Iterator[tuple[Kubectl, Kubectl]]:
    """alice's namespace for SlurmJobs, and one for the pods that they are compared with."""
    jobs = Kubectl(bed.places, "alice")
    end_red_box(bed.host("login"))
    deliver(bed, Progress.silent())
    try:
        _delete_all(jobs)  # a benchmark that was killed has left its own
        with namespace(bed, "bench-slurmjobs") as pods:
            yield jobs, pods
    finally:
        _delete_all(jobs)
        take_away(bed)


def _delete_all(jobs: Kubectl) -> None:
    jobs.run("delete", "slurmjob", f"--selector=app={LABEL['app']}", "--timeout=170s", timeout=180)


@benchmark(
    Figure("slurmjob-submitted", "kubectl apply -> the job's id in Slurm", "s"),
    takes_s=90,
    rounds=7,
    baseline_name="a native pod -> Running",
)
@contextmanager
def slurmjob_submitted(bed: Bed) -> Iterator[Trial]:
    with both(bed) as (jobs, pods):
        yield Trial(
            lambda: {
                "slurmjob-submitted": _shown(jobs, slurm_job(_new_name(), "true"), "{.object.status.jobID}")
            },
            lambda: {"slurmjob-submitted": _shown(pods, pod(_new_name(), "sleep 60"), _running())},
        )


def _new_name() -> str:
    """Never twice: what is left of a name would be waited for."""
    return f"b-{uuid4().hex[:8]}"


def _running() -> str:
    return "{.object.status.containerStatuses[0].state.running.startedAt}"


def _shown(kubectl: Kubectl, thing: Mapping[str, Any], path: str) -> float:
    """Seconds from apply until a watch shows something at the path."""
    with _watching(kubectl, thing, path) as seen:
        started = time.perf_counter()
        kubectl.apply(thing)
        seen()
        return time.perf_counter() - started


@contextmanager
def _watching(kubectl: Kubectl, thing: Mapping[str, Any], path: str) -> Iterator[Callable[[], str]]:
    """What waits for a watch to show something at the path; the thing is deleted in the end."""
    kind, name = thing["kind"].lower(), thing["metadata"]["name"]
    output = f'jsonpath={{.object.metadata.name}} {path}{{"\\n"}}'
    with kubectl.reading("get", kind, "--watch", "--output-watch-events", "-o", output) as watch:
        stream = watch.stdout
        assert stream

        def seen() -> str:
            for line in stream:
                words = line.decode().split()
                if words[:1] == [name] and len(words) > 1:
                    return words[1]
            raise RuntimeError(f"the watch ended before {name} had {path}")

        yield seen
    kubectl.run("delete", kind, name, "--timeout=60s", timeout=70)


@benchmark(
    Figure("slurmjob-end", "a job ends -> final phase", "s"),
    takes_s=130,
    rounds=5,
    baseline_name=A_PODS,
)
@contextmanager
def slurmjob_end(bed: Bed) -> Iterator[Trial]:
    """Closing the named pipe that it reads ends a job, at a moment that is known."""

    def ended(host: str, kubectl: Kubectl, thing: Mapping[str, Any], path: str) -> Mapping[str, float]:
        kind, name = thing["kind"].lower(), thing["metadata"]["name"]
        with _watching(kubectl, thing, path) as seen:
            kubectl.apply(thing)
            kubectl.run("wait", f"{kind}/{name}", f"--for={RUNNING}", "--timeout=60s", timeout=70)
            with _pipe(bed, host).open("wb"):
                time.sleep(1)  # its start is over
            started = time.perf_counter()
            seen()
            return {"slurmjob-end": time.perf_counter() - started}

    with both(bed) as (jobs, pods), pipes(bed):
        yield Trial(
            lambda: ended(SLURM_NODE, jobs, _reading_job(_new_name()), "{.object.status.endedAt}"),
            lambda: ended(
                KUBERNETES_NODE,
                pods,
                _reading_pod(_new_name()),
                "{.object.status.containerStatuses[0].state.terminated.finishedAt}",
            ),
        )


@contextmanager
def pipes(bed: Bed) -> Iterator[None]:
    """A named pipe on the host of the job, and on that of the pod."""
    hosts = (SLURM_NODE, KUBERNETES_NODE)
    for host in hosts:
        made = f"rm -rf {FIFO_FOLDER}; mkdir {FIFO_FOLDER}; mkfifo -m 666 {FIFO_FOLDER}/lines"
        bed.host(host).run("sh", "-c", made)
    yield
    for host in hosts:
        bed.host(host).run("rm", "-rf", FIFO_FOLDER)


def _pipe(bed: Bed, host: str) -> Path:
    return Path(f"/proc/{bed.host(host).pid()}/root{FIFO_FOLDER}/lines")


def _reading_job(name: str) -> dict[str, Any]:
    return slurm_job(name, f"exec cat {FIFO_FOLDER}/lines", options=[f"--nodelist={SLURM_NODE}"])


def _reading_pod(name: str) -> dict[str, Any]:
    volume = {"name": "shared", "hostPath": {"path": FIFO_FOLDER}}
    return pod(name, "exec cat /shared/lines", nodeName=KUBERNETES_NODE, volumes=[volume])


@benchmark(
    Figure("slurmjob-log-latency-p50", "log line -> kubectl logs -f: median", "ms"),
    Figure("slurmjob-log-latency-p99", "the same, 99th percentile", "ms"),
    takes_s=90,
    rounds=3,
    baseline_name=A_PODS,
)
@contextmanager
def slurmjob_log_latency(bed: Bed) -> Iterator[Trial]:
    """Feed a `cat` through a named pipe on its host, so that both ends are stamped by one clock."""
    with both(bed) as (jobs, pods), pipes(bed), ExitStack() as stack:
        for kubectl, thing in ((jobs, _reading_job("echo")), (pods, _reading_pod("echo"))):
            kubectl.apply(thing)
            kubectl.run(
                "wait", f"{thing['kind'].lower()}/echo", f"--for={RUNNING}", "--timeout=60s", timeout=70
            )

        def measure_on(host: str, kubectl: Kubectl, name: str) -> Callable[[], Mapping[str, float]]:
            lines = stack.enter_context(_pipe(bed, host).open("wb", buffering=0))
            follower = stack.enter_context(kubectl.reading("logs", "--follow", name))
            return lambda: {
                figure.replace("kubectl-logs", "slurmjob-log"): value
                for figure, value in line_latencies(lines, follower).items()
            }

        yield Trial(measure_on(SLURM_NODE, jobs, "echo-job"), measure_on(KUBERNETES_NODE, pods, "echo"))


@benchmark(
    Figure("slurmjob-log-throughput", f"kubectl logs -f of a job that writes {MEGABYTES} MB", "MB/s"),
    Figure("slurmjob-log-lost", "lines lost by the kubelet's log rotation", "lines"),
    takes_s=330,
    rounds=3,
    baseline_name=A_PODS,
)
@contextmanager
def slurmjob_log_throughput(bed: Bed) -> Iterator[Trial]:
    script = f"sleep 2; yes {LINE.decode().strip()} | head -c {len(LINE) * EXPECTED_LINES}"

    def measure(kubectl: Kubectl, thing: Mapping[str, Any], suffix: str) -> Mapping[str, float]:
        kubectl.apply(thing)
        kind, name = thing["kind"].lower(), thing["metadata"]["name"]
        # The pod, also where it stands for a job: that one may be over before it was ever seen to run.
        for state in ("create", RUNNING):
            kubectl.run("wait", f"pod/{name}{suffix}", f"--for={state}", "--timeout=60s", timeout=70)
        with kubectl.reading("logs", "--follow", name + suffix) as follower:
            assert follower.stdout
            received, took = drain(follower.stdout.fileno())
        kubectl.run("delete", kind, name, "--timeout=60s", timeout=70)
        return {
            "slurmjob-log-throughput": received / 1e6 / took,
            "slurmjob-log-lost": EXPECTED_LINES - received / len(LINE),
        }

    with both(bed) as (jobs, pods):
        yield Trial(
            lambda: measure(jobs, slurm_job(_new_name(), script), "-job"),
            lambda: measure(pods, pod(_new_name(), script), ""),
        )


@benchmark(
    Figure(
        "slurmjobs-100-submitted",
        f"{MANY} simultaneous SlurmJobs: all in Slurm",
        "s",
        Target("ratio", "<=", 1.15),
    ),
    takes_s=290,
    rounds=1,
    baseline_name=f"{MANY} native pods: all have run",
)
@contextmanager
def slurmjobs_100(bed: Bed) -> Iterator[Trial]:
    names = [f"many-{number}" for number in range(MANY)]
    with both(bed) as (jobs, pods):
        yield Trial(
            lambda: {"slurmjobs-100-submitted": all_at_once(jobs, [slurm_job(one, "true") for one in names])},
            lambda: {
                "slurmjobs-100-submitted": all_at_once(
                    pods,
                    [pod(one, "true") for one in names],
                    ".status.containerStatuses[0].state.terminated.finishedAt",
                )
            },
        )


def all_at_once(kubectl: Kubectl, things: list[dict[str, Any]], path: str = ".status.jobID") -> float:
    """Seconds from the one `kubectl create` of all until each has something at the path; then they go."""
    started = time.perf_counter()
    kubectl.run(
        *("create", "-f", "-"),
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": things}),
        timeout=MANY_WITHIN_S,
    )
    kind = things[0]["kind"].lower()
    while len(kubectl.run("get", kind, "-o", f"jsonpath={{.items[*]{path}}}").split()) < len(things):
        if time.perf_counter() - started > MANY_WITHIN_S:
            raise RuntimeError(f"not all of {len(things)} within {MANY_WITHIN_S} s")
        time.sleep(0.5)
    took = time.perf_counter() - started
    kubectl.run("delete", kind, "--all", "--timeout=170s", timeout=180)
    return took


@benchmark(
    Figure("companion-pod-memory", "working set of a companion", "MiB"),
    takes_s=80,
    rounds=1,
    baseline_name="a native pod that sleeps",
)
@contextmanager
def companion_pod_memory(bed: Bed) -> Iterator[Trial]:
    def of(kubectl: Kubectl, name: str) -> Mapping[str, float]:
        node = kubectl.run("get", "pod", name, "-o", "jsonpath={.spec.nodeName}")
        summary = json.loads(kubectl.run("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary"))
        (found,) = [one for one in summary["pods"] if one["podRef"]["name"] == name]
        return {"companion-pod-memory": found["containers"][0]["memory"]["workingSetBytes"] / 2**20}

    with both(bed) as (jobs, pods):
        jobs.apply(slurm_job("sleeper", "sleep 600"))
        pods.apply(pod("sleeper", "sleep 600"))
        jobs.run("wait", "slurmjob/sleeper", "--for=condition=Running", "--timeout=60s", timeout=70)
        pods.run("wait", "pod/sleeper", "--for=condition=Ready", "--timeout=60s", timeout=70)
        time.sleep(15)  # the kubelet counts every ten seconds
        yield Trial(lambda: of(jobs, "sleeper-job"), lambda: of(pods, "sleeper"))
