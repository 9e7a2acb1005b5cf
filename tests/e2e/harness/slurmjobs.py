"""SlurmJobs on the bed as users have them: applied, looked at, changed and deleted.

Red Box is installed once for all tests that use these, as the checkout has it, and stays; red-box is running
whenever a test begins.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any
from uuid import uuid4

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import deliver
from redbox_bed.hosts.host import Host
from redbox_shared.own_lines import PREFIX
from redbox_shared.requested_actions import CANCEL, REQUESTED
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.redbox_server import end_red_box
from tests.e2e.harness.waiting import WITHIN_S, eventually

ATTEMPTS = "JobIDRaw,State"
Status = dict[str, Any]


@dataclass(frozen=True)
class Applied:
    """A SlurmJob that was applied."""

    kubectl: Kubernetes
    login: Host
    namespace: str
    name: str

    def __call__(self, *arguments: str) -> str:
        return self.kubectl(f"--namespace={self.namespace}", *arguments)

    def get(self, kind: str = "slurmjob", name: str = "") -> dict[str, Any]:
        """The object, or another of its namespace; nothing where there is none."""
        return self.kubectl.get(kind, name or self.name, self.namespace)

    @property
    def pod(self) -> str:
        return f"{self.name}-job"

    def pod_of(self, attempt: int) -> str:
        return self.pod if attempt == 1 else f"{self.pod}-{attempt}"

    # -- what is said of it

    @property
    def status(self) -> Status:
        return dict(self.get().get("status", {}))

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        """Status and reason of each."""
        return {one["type"]: (one["status"], one["reason"]) for one in self.status.get("conditions", [])}

    def until(self, holds: Callable[[Status], object], within_s: float = WITHIN_S) -> Status:
        """The status once this holds of it."""
        status: Status = {}
        for state in self.kubectl.states("slurmjob", self.name, self.namespace, within_s):
            status = dict(state.get("status", {}))
            if holds(status):
                return status
        raise AssertionError(f"{self.name} did not come to that: {status}\n{self._why()}")

    def _why(self) -> str:
        """What Kubernetes knows of its pods, for a test that has waited in vain."""
        pods = self.kubectl.list("pods", self.namespace)
        shown = [
            (pod["metadata"]["name"], pod["metadata"].get("deletionTimestamp"), pod.get("status"))
            for pod in pods
            if pod["metadata"]["name"].startswith(self.name)
        ]
        return f"{shown}\n{self('get', 'events', '--sort-by=.lastTimestamp')[-4000:]}"

    def comes_to(self, **fields: object) -> Status:
        """The status once it says all of this."""
        return self.until(lambda status: fields.items() <= status.items())

    def reaches(self, *phases: str, within_s: float = WITHIN_S) -> Status:
        """The status once it has one of these phases."""
        return self.until(lambda status: status.get("phase") in phases, within_s)

    def says(self, condition: str, reason: str) -> Status:
        """The status once a condition has this reason."""
        return self.until(
            lambda status: any(
                (one["type"], one["reason"]) == (condition, reason) for one in status.get("conditions", [])
            )
        )

    def wait(self, condition: str) -> Status:
        """`kubectl wait --for=…`, and the status then."""
        try:
            self("wait", f"slurmjob/{self.name}", f"--for={condition}", f"--timeout={WITHIN_S}s")
        except BedError as error:
            raise AssertionError(f"{error}\n{self.status}\n{self._why()}") from error
        return self.status

    def finishes(self) -> Status:
        return self.until(
            lambda status: any(
                (one["type"], one["status"]) == ("Finished", "True") for one in status.get("conditions", [])
            )
        )

    def starts(self) -> Status:
        return self.reaches("Running")

    def events(self) -> list[str]:
        """Reasons of what was told of it, oldest first."""
        selector = f"involvedObject.name={self.name},involvedObject.kind=SlurmJob"
        found = self.kubectl.list("events", self.namespace, fields=selector)
        found.sort(key=lambda one: one["metadata"]["creationTimestamp"])
        return [one["reason"] for one in found for _ in range(one.get("count") or 1)]

    def in_slurm(self) -> list[tuple[str, str]]:
        """Every job of this name that Slurm ever had: id and state."""
        out = self.login.run("sacct", SINCE, "-XDnPa", "-o", ATTEMPTS, f"--name={self.name}").stdout
        rows = (line.split("|") for line in out.splitlines())
        return [(row[0], row[1].split()[0]) for row in rows]

    def has_in_slurm(self, *states: str) -> None:
        """Had one job for each of these states, as soon as the accounting has caught up with slurmctld."""
        eventually(lambda: [state for _, state in self.in_slurm()] == list(states))

    def pod_ends(self) -> None:
        """Once its pod has failed, or is gone."""
        gone = {"phase": "Failed"}
        eventually(lambda: self.get("pod", self.pod).get("status", gone)["phase"] == "Failed")

    # -- its log

    def has_a_log(self) -> None:
        until_its_log(self.kubectl, self.pod, self.namespace)

    def log(self) -> str:
        """The whole log: until the pod has ended, it is followed to its end."""
        self.has_a_log()
        return self("logs", "--follow", self.pod)

    def whole_output(self, attempt: int = 1) -> str:
        """`kubectl logs` of an attempt that has ended, without lines of our own."""
        log = self("logs", self.pod_of(attempt))
        return "".join(line for line in log.splitlines(keepends=True) if not line.startswith(PREFIX))

    # -- what is done to it

    def change(self, **spec: object) -> None:
        self._patch(spec=spec)

    def abandon(self) -> None:
        self._patch(metadata={"annotations": {"redbox.dev/abandon": "true"}})

    def cancel(self) -> None:
        """As kubectl slurm cancel: the SlurmJob stays."""
        self._patch(metadata={"annotations": {CANCEL: REQUESTED}})

    def delete(self, *, wait: bool = True) -> None:
        self.kubectl.delete("slurmjob", self.name, namespace=self.namespace, wait=wait)

    def is_gone(self, within_s: float = WITHIN_S) -> None:
        """Wait until it is no more."""
        eventually(lambda: not self.get(), within_s, what=f"the end of {self.name}")

    def _patch(self, **change: object) -> None:
        self.kubectl.patch("slurmjob", self.name, change, self.namespace)


@dataclass
class SlurmJobs:
    """Those of one test, all deleted at its end."""

    kubectl: Kubernetes
    login: Host
    made: list[Applied] = field(default_factory=list)

    @classmethod
    def on(cls, bed: Bed) -> SlurmJobs:
        """Red Box as the checkout has it is installed first, once for all tests."""
        delivered(bed.places.state)
        login_node.start(bed.host("login"))
        return cls(Kubernetes(bed), bed.host("login"))

    def apply(self, batch: str = "", *, namespace: str = "alice", name: str = "", **spec: Any) -> Applied:
        """Apply one: `batch` is a script, or its lines after #!/bin/bash; fields are the spec's, or None."""
        job = Applied(self.kubectl, self.login, namespace, name or new_name())
        if batch:
            spec["batch"] = batch if batch.startswith("#!") else f"#!/bin/bash\n{batch}\n"
        fields = {**({} if "endpoint" in spec else {"cluster": "hpc1"}), **spec}
        manifest = {
            "apiVersion": "redbox.dev/v1alpha1",
            "kind": "SlurmJob",
            "metadata": {"name": job.name, "namespace": namespace},
            "spec": {name: value for name, value in fields.items() if value is not None},
        }
        self.made.append(job)
        self.kubectl.apply(json.dumps(manifest))
        return job

    def clean(self) -> None:
        """All at once: each waits for its job's end in Slurm."""
        for namespace in {job.namespace for job in self.made}:
            names = [job.name for job in self.made if job.namespace == namespace]
            self.kubectl.delete("slurmjob", *names, namespace=namespace)


def until_its_log(kubectl: Kubernetes, pod: str, namespace: str) -> None:
    """Wait until a container of the pod has begun: a job may have ended before that."""

    def has_begun() -> bool:
        containers = kubectl.get("pod", pod, namespace).get("status", {}).get("containerStatuses", [])
        return any({"running", "terminated"} & one["state"].keys() for one in containers)

    eventually(has_begun)


@cache
def delivered(_: Path) -> None:
    """Both sides as the checkout has them, installed once for all tests; the bed's folder says which bed."""
    bed = Bed.open()
    end_red_box(bed.host("login"))
    deliver(bed, Progress.silent())


def new_name() -> str:
    return f"t-{uuid4().hex[:8]}"


def is_whole(log: str, output: str, runs: int = 2) -> bool:
    """Whether it is this output, perhaps behind that of runs before, each of which may have been cut short.

    Of a run that slurmd did not launch it is once more what the file had: that of the run before.
    """
    before = log.removesuffix(output)
    return before != log and _begins_again(before, output, runs - 1)


def _begins_again(text: str, output: str, most: int) -> bool:
    """Whether it is the output's beginning, that often at most."""
    if most <= 1:
        return not text or (most == 1 and output.startswith(text))
    cuts = takewhile(lambda cut: output.startswith(text[:cut]), range(len(text) + 1))
    return any(_begins_again(text[cut:], output, most - 1) for cut in cuts)


def follow(job: Applied, bed: Bed, pod: str = "") -> subprocess.Popen[str]:
    """`kubectl logs --follow`, as somebody would who is there from the start."""
    program = str(bed.places.state / "bin/kubectl")
    command = [program, "--kubeconfig", str(bed.places.kubeconfig), "logs", "--follow", pod or job.pod]
    return subprocess.Popen(
        [*command, f"--namespace={job.namespace}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill(bed: Bed, controller: str) -> None:
    """Kill -9, in the middle of whatever it does; the kubelet starts it anew."""
    running = f"{controller.replace('r', '[r]', 1)} run"
    for name in ("k1", "k2"):
        bed.host(name).run("sh", "-c", f"kill -9 $(pgrep -f '{running}')", check=False)
