"""SlurmJobs for tests on the bed: applied as a user would, looked at as a user would, deleted at the end."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import yaml

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.delivery import Kubernetes, deliver
from redbox_bed.progress import Progress

WITHIN_S = 110
Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen | None], within: float = WITHIN_S) -> Seen:
    """What `look` gives once it gives something true."""
    deadline = time.monotonic() + within
    while not (seen := look()):
        assert time.monotonic() < deadline, f"it did not come to that within {within} s"
        time.sleep(0.2)
    return seen


@dataclass(frozen=True)
class Applied:
    """A SlurmJob that was applied."""

    kubectl: Kubernetes
    namespace: str
    name: str

    def __call__(self, *arguments: str) -> str:
        return self.kubectl(*arguments, f"--namespace={self.namespace}")

    @property
    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self("get", "slurmjob", self.name, "--output=json"))
        return dict(answer.get("status", {}))

    @property
    def pod(self) -> str:
        return f"{self.name}-job"

    def wait(self, condition: str) -> dict[str, Any]:
        """`kubectl wait --for=…`, and the status then."""
        self("wait", f"slurmjob/{self.name}", f"--for={condition}", f"--timeout={WITHIN_S}s")
        return self.status

    def finishes(self) -> dict[str, Any]:
        return self.wait("condition=Finished")

    def starts(self) -> dict[str, Any]:
        return self.wait("jsonpath={.status.phase}=Running")

    def comes_to(self, **fields: object) -> dict[str, Any]:
        """The status once it says all of this."""

        def look() -> dict[str, Any] | None:
            status = self.status
            return status if fields.items() <= status.items() else None

        return eventually(look)

    def change(self, **spec: object) -> None:
        self("patch", "slurmjob", self.name, "--type=merge", f"--patch={json.dumps({'spec': spec})}")

    def log(self) -> str:
        """The whole log: until the pod has ended, it is followed to its end."""
        self.has_a_log()
        return self("logs", "--follow", self.pod)

    def has_a_log(self) -> None:
        """Once the pod's container has begun."""
        states = "--output=jsonpath={.status.containerStatuses[*].state}"
        eventually(
            lambda: (
                {"running", "terminated"} & json.loads(self("get", "pod", self.pod, states) or "{}").keys()
            )
        )

    def delete(self) -> None:
        self("delete", "slurmjob", self.name, "--ignore-not-found", "--timeout=60s")


@dataclass
class SlurmJobs:
    """Those of one test, all deleted at its end."""

    kubectl: Kubernetes
    made: list[Applied] = field(default_factory=list)

    @classmethod
    def on(cls, bed: Bed) -> SlurmJobs:
        """Red Box as the checkout has it is installed first, once for all tests."""
        delivered(bed.places.state)
        login_node.start(bed.host("login"))
        return cls(Kubernetes(bed))

    def apply(self, batch: str = "", *, namespace: str = "alice", name: str = "", **spec: Any) -> Applied:
        """Apply one: `batch` is the script's lines after #!, fields are as the manifest has them."""
        job = Applied(self.kubectl, namespace, name or new_name())
        if batch:
            spec["batch"] = f"#!/bin/bash\n{batch}\n"
        manifest = {
            "apiVersion": "redbox.dev/v1alpha1",
            "kind": "SlurmJob",
            "metadata": {"name": job.name, "namespace": namespace},
            "spec": {"cluster": "hpc1", **spec},
        }
        self.made.append(job)
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(manifest))
        return job

    def clean(self) -> None:
        """All at once: each waits for its job's end in Slurm."""
        for namespace in {job.namespace for job in self.made}:
            names = [job.name for job in self.made if job.namespace == namespace]
            self.kubectl(
                "delete",
                "slurmjob",
                *names,
                f"--namespace={namespace}",
                "--ignore-not-found",
                "--timeout=90s",
            )


@cache
def delivered(_: Path) -> None:
    """Both sides as the checkout has them, installed once for all tests; the bed's folder says which bed."""
    deliver(Bed.open(), Progress.silent())


def new_name() -> str:
    return f"t-{uuid4().hex[:8]}"


def follow(job: Applied, bed: Bed) -> subprocess.Popen[str]:
    """`kubectl logs --follow`, as somebody would who is there from the start."""
    program = str(bed.places.state / "bin/kubectl")
    command = [program, "--kubeconfig", str(bed.places.kubeconfig), "logs", "--follow", job.pod]
    return subprocess.Popen(
        [*command, f"--namespace={job.namespace}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
