"""What the benchmarks of hosted Slurm share: what is waited for, bare pods, and the operator's process."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.delivery import NAMESPACE as OPERATOR_NAMESPACE
from tests.bench.account import rpcs_of
from tests.bench.processor_time import named_processes, time_of
from tests.e2e.harness.hosted_slurm import NAMESPACE, WORKERS, HostedSlurm, hosting, kill_container
from tests.e2e.harness.kubernetes import Kubernetes, Object

RELEASE = "26.05"
LIMITS = {"memory": "512Mi"}
"""No limit of CPU: with the least that thirty workers could have of the bed, slurmd takes seconds to load."""
OPERATOR = "redbox-hosting"
WITHIN_S = 120.0
OF_WORKERS = f"slurm.redbox.dev/nodeset={WORKERS}"
BARE = "bench=bare"
UNTIL_TERMINATED = 'trap "exit 0" TERM; sleep infinity & wait'
DRAINING = "slurm.redbox.dev/Draining"


@dataclass(frozen=True)
class Hosted:
    """The bed with the chart that runs hosted Slurm."""

    bed: Bed
    kubernetes: Kubernetes
    image: str

    # -- bare pods

    def create_bare(self, count: int) -> float:
        """How long it takes until so many pods of a worker's image and size are ready."""
        items = [bare_pod(f"bare-{number}", self.image) for number in range(count)]
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        started = time.perf_counter()
        self._kubectl("create", "--filename=-", stdin=document)
        self._kubectl("wait", "--for=condition=Ready", "pod", f"--selector={BARE}", f"--timeout={WITHIN_S}s")
        return time.perf_counter() - started

    def delete_bare(self, numbers: range) -> float:
        """How long it takes until they are gone."""
        started = time.perf_counter()
        self._kubectl("delete", "pod", *(f"bare-{number}" for number in numbers))
        return time.perf_counter() - started

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> None:
        self.kubernetes(f"--namespace={NAMESPACE}", *arguments, stdin=stdin)

    # -- the operator and the workers

    def writes(self) -> float:
        """All that the operator wrote to the API server."""
        (pod,) = self.kubernetes.list(
            "pod",
            OPERATOR_NAMESPACE,
            labels=f"app.kubernetes.io/name={OPERATOR}",
            fields="status.phase=Running",
        )
        place = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
        lines = self.kubernetes.raw(place).splitlines()
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if line.startswith("redbox_hosting_writes_total")
        )

    def kill_container(self, pod: str) -> None:
        kill_container(self.bed, self.kubernetes.get("pod", pod, NAMESPACE))

    def operator_memory_mib(self) -> float:
        pages = int(Path(f"/proc/{self._operator_pid()}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    def operator_cpu_s(self) -> float:
        ((_, spent),) = time_of(self._operator_pid())
        return (spent.own + spent.children) / 1000

    def _operator_pid(self) -> int:
        (pid,) = (pid for _, name, pid in named_processes(self.bed) if name == "hosting")
        return pid


@contextmanager
def with_hosting(bed: Bed) -> Iterator[Hosted]:
    with hosting(bed, RELEASE) as kubernetes:
        deployment = kubernetes.get("deployment", OPERATOR, OPERATOR_NAMESPACE)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        image = next(each["value"] for each in container["env"] if each["name"] == "REDBOX_SLURM_IMAGE")
        yield Hosted(bed, kubernetes, image)


def bare_pod(name: str, image: str) -> Object:
    label, _, value = BARE.partition("=")
    main = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", UNTIL_TERMINATED],
        "resources": {"limits": LIMITS},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {label: value}},
        "spec": {"automountServiceAccountToken": False, "containers": [main]},
    }


# ---------------------------------------------------------------------------------------------- waiting
def until(states: Iterator[Object], what: str, holds: Callable[[Object], bool]) -> None:
    """Until an object is seen in a state, as soon as a watch shows it."""
    if not any(holds(state) for state in states):
        raise RuntimeError(f"it did not come to {what} within {WITHIN_S:.0f} s")


def until_in_service(slurm: HostedSlurm, count: int) -> None:
    """So many workers, all nodes idle or with a job."""

    def holds(node_set: Object) -> bool:
        status = node_set.get("status", {})
        idle = status.get("slurmIdle", 0) + status.get("slurmAllocated", 0)
        return (idle, status.get("replicas", 0)) == (count, count) and is_current(node_set)

    until(_node_set(slurm), f"{count} nodes in service", holds)


def until_settled(slurm: HostedSlurm) -> None:
    """Nothing is left to do."""

    def holds(node_set: Object) -> bool:
        return is_current(node_set) and condition_of(node_set, "Progressing") == "False"

    until(_node_set(slurm), "a settled NodeSet", holds)


def until_drain_is(slurm: HostedSlurm, worker: str, *, shown: bool) -> None:
    states = slurm.kubernetes.states("pod", worker, NAMESPACE, WITHIN_S)
    until(states, f"Draining={shown}", lambda pod: (condition_of(pod, DRAINING) == "True") == shown)


def _node_set(slurm: HostedSlurm) -> Iterator[Object]:
    return slurm.kubernetes.states("nodesets.slurm.redbox.dev", WORKERS, NAMESPACE, WITHIN_S)


def is_current(body: Object) -> bool:
    """Whether its status is of the newest spec."""
    return bool(body) and body.get("status", {}).get("observedGeneration") == body["metadata"]["generation"]


def condition_of(body: Object, name: str) -> str:
    conditions = body.get("status", {}).get("conditions", [])
    return next((str(each["status"]) for each in conditions if each["type"] == name), "")


@contextmanager
def watching_workers(slurm: HostedSlurm) -> Iterator[Callable[[str, int], None]]:
    """What waits for so many events of a type; first come those that are there, as ADDED."""
    command = slurm.kubernetes.command(
        *("get", "pods", f"--namespace={NAMESPACE}", f"--selector={OF_WORKERS}"),
        *("--watch", "--output-watch-events", '--output=jsonpath={.type}{"\\n"}'),
        f"--request-timeout={WITHIN_S}s",
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        events = watch.stdout
        assert events

        def wait(kind: str, count: int) -> None:
            for line in events:
                count -= line.strip() == kind
                if not count:
                    return
            raise RuntimeError(f"the watch ended before {count} pods more were {kind}")

        try:
            yield wait
        finally:
            watch.kill()


# ---------------------------------------------------------------------------------------------- acts
def scale_out(slurm: HostedSlurm, count: int) -> float:
    """Seconds until all nodes are in service in Slurm, as the NodeSet's status shows it."""
    started = time.perf_counter()
    slurm.scale(count)
    until_in_service(slurm, count)
    took = time.perf_counter() - started
    until_settled(slurm)
    return took


def scale_in(slurm: HostedSlurm, before: int, count: int) -> float:
    """Seconds until the pods that are too many are gone; their records in Slurm go after them."""
    with watching_workers(slurm) as wait:
        wait("ADDED", before)
        started = time.perf_counter()
        slurm.scale(count)
        wait("DELETED", before - count)
        took = time.perf_counter() - started
    until_settled(slurm)
    until_slurm_says(slurm, "scontrol --oneliner show nodes | grep -c ^NodeName=", f"^{count}$")
    return took


def until_slurm_says(slurm: HostedSlurm, command: str, pattern: str) -> None:
    """Asked in slurmctld's pod, ten times a second."""
    look = f"until {command} | grep -q '{pattern}'; do sleep 0.1; done"
    slurm.run("timeout", f"{WITHIN_S:.0f}", "sh", "-c", look)


def rpcs(slurm: HostedSlurm) -> int:
    """All that slurmctld was asked so far, by any user."""
    return rpcs_of(slurm.run("sdiag"))
