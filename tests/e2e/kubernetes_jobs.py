"""SlurmJobs on the bed as a user of Kubernetes has them: applied, looked at, changed, deleted by kubectl."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

import pytest
import yaml

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.delivery import NAMESPACE as OPERATORS
from redbox_bed.delivery import Kubernetes, deliver
from redbox_bed.host import Host
from redbox_bed.progress import Progress

WITHIN_S = 90
OPERATOR = "deployment/redbox-operator"
ResultT = TypeVar("ResultT")


def eventually(
    look: Callable[[], ResultT | None], within_s: float = WITHIN_S, *, what: str = "that"
) -> ResultT:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"it did not come to {what} in {within_s:.0f} s"
        time.sleep(0.2)
    return found


@dataclass
class Tenant:
    """A namespace, and what is made in it."""

    kubectl: Kubernetes
    login: Host
    namespace: str
    made: list[str] = field(default_factory=list)

    def apply(self, script: str = "#!/bin/sh\ntrue\n", *, name: str = "", **spec: Any) -> SlurmJob:
        """A SlurmJob with this script."""
        job = SlurmJob(self, name or f"t-{uuid4().hex[:8]}")
        manifest = {
            "apiVersion": "redbox.dev/v1alpha1",
            "kind": "SlurmJob",
            "metadata": {"name": job.name, "namespace": self.namespace},
            "spec": {"cluster": "hpc1", "batch": script, **spec},
        }
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(manifest))
        self.made.append(job.name)
        return job

    def clean(self) -> None:
        """Delete all that was made."""
        if self.made:
            names = ("slurmjob", *self.made)
            self.kubectl("delete", *names, f"-n={self.namespace}", "--ignore-not-found", "--timeout=60s")
            self.made.clear()


@dataclass(frozen=True)
class SlurmJob:
    """One of them."""

    tenant: Tenant
    name: str

    def get(self, kind: str = "slurmjob", name: str = "") -> dict[str, Any]:
        """The object; nothing where there is none."""
        arguments = (kind, name or self.name, f"-n={self.tenant.namespace}", "--ignore-not-found", "-o=json")
        text = self.tenant.kubectl("get", *arguments)
        return dict(json.loads(text)) if text.strip() else {}

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.get().get("status", {}))

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        return {one["type"]: (one["status"], one["reason"]) for one in self.status.get("conditions", [])}

    def reaches(self, *phases: str, within_s: float = WITHIN_S) -> dict[str, Any]:
        """The status once it has one of these phases."""

        def look() -> dict[str, Any] | None:
            status = self.status
            return status if status.get("phase") in phases else None

        return eventually(look, within_s, what=f"phase {' or '.join(phases)} (it is {self.status})")

    def says(self, condition: str, reason: str) -> dict[str, Any]:
        """The status once a condition has this reason."""

        def look() -> dict[str, Any] | None:
            status = self.status
            reasons = {one["type"]: one["reason"] for one in status.get("conditions", [])}
            return status if reasons.get(condition) == reason else None

        return eventually(look, what=f"{condition} because of {reason} (it is {self.status})")

    def patch(self, **spec: Any) -> None:
        """Change fields of the spec."""
        body = json.dumps({"spec": spec})
        self.tenant.kubectl(
            "patch", "slurmjob", self.name, f"-n={self.tenant.namespace}", "--type=merge", f"--patch={body}"
        )

    def delete(self, *, wait: bool = True) -> None:
        """Delete it."""
        how = "--timeout=60s" if wait else "--wait=false"
        self.tenant.kubectl("delete", "slurmjob", self.name, f"-n={self.tenant.namespace}", how)

    def gone(self, within_s: float = WITHIN_S) -> None:
        """Wait until it is no more."""
        eventually(lambda: not self.get(), within_s, what="its end")

    def logs(self) -> list[str]:
        """What kubectl shows."""
        pod = f"{self.name}-job"
        return self.tenant.kubectl("logs", f"-n={self.tenant.namespace}", pod).splitlines()

    def events(self) -> list[str]:
        """Reasons of what was told of it, oldest first."""
        selector = f"--field-selector=involvedObject.name={self.name},involvedObject.kind=SlurmJob"
        text = self.tenant.kubectl("get", "events", f"-n={self.tenant.namespace}", selector, "-o=json")
        found = sorted(json.loads(text)["items"], key=lambda one: one["metadata"]["creationTimestamp"])
        return [one["reason"] for one in found for _ in range(one.get("count") or 1)]

    def in_slurm(self) -> list[tuple[str, str]]:
        """Every job of this name that Slurm ever had: id and state."""
        out = self.tenant.login.run(
            *("sacct", "-X", "-D", "-n", "-P", "-o", "JobIDRaw,State", f"--name={self.name}", "-a")
        ).stdout
        rows = (line.split("|") for line in out.splitlines())
        return [(row[0], row[1].split()[0]) for row in rows]


def kill_operator(bed: Bed) -> None:
    """Kill -9, in the middle of whatever it does; the kubelet starts it anew."""
    for name in ("k1", "k2"):
        bed.host(name).run("sh", "-c", "kill -9 $(pgrep -f '[r]edbox-operator run')", check=False)


def operator_is_ready(kubectl: Kubernetes) -> None:
    """Wait until it works again."""
    kubectl("rollout", "status", OPERATOR, f"-n={OPERATORS}", "--timeout=90s")


# --------------------------------------------------------------- fixtures of those who try the operator


@pytest.fixture(scope="module")
def login(bed: Bed) -> Host:
    return bed.host("login")


@pytest.fixture(scope="module")
def kubectl(bed: Bed, login: Host) -> Iterator[Kubernetes]:
    deliver(bed, Progress.silent())
    kubectl = Kubernetes(bed)
    operator_is_ready(kubectl)
    yield kubectl
    login.kill(login_node.SERVICE)


@pytest.fixture
def alice(kubectl: Kubernetes, login: Host) -> Iterator[Tenant]:
    tenant = Tenant(kubectl, login, "alice")
    yield tenant
    tenant.clean()
