"""Pods on Slurm on the bed as users have them: applied, looked at and deleted by kubectl.

Red Box is installed with pods on for each file that uses these. Images need no registry: all containers are
of one SIF in alice's home directory, which all hosts share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import yaml

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.delivery import CHART, RELEASE, SLURM_CLUSTER, Helm
from redbox_bed.hosts.host import Host
from redbox_bed.kube.conf import api_url
from redbox_bed.prepare.walkthrough import VOLUMES_RULE
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.container_image import BUILD, IMAGE
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.slurmjobs import SlurmJobs, new_name
from tests.e2e.harness.virtual_chart import forget_resourced
from tests.e2e.harness.waiting import WITHIN_S, eventually

NODE = f"{SLURM_CLUSTER}.debug"
SELECTOR = {"redbox.dev/cluster": SLURM_CLUSTER, "redbox.dev/partition": "debug"}
TOLERATION = {"key": "redbox.dev/slurm", "operator": "Exists", "effect": "NoSchedule"}
VALUES = f"resourced.enabled=true,resourced.pods.enabled=true,slurmClusters.{SLURM_CLUSTER}.delivery=Virtual"
ON = f"resourced.pods.namespaces={{alice}},slurmClusters.{SLURM_CLUSTER}.pods.enabled=true"
OFF = "resourced.enabled=false,resourced.pods.enabled=false"
IN_A_CONTAINER = f"slurmClusters.{SLURM_CLUSTER}.delivery=Container"
USER = "alice"
HOME = "/home/alice"
BUILDS_WITHIN_S = 120
LONGEST_JOB_NAME = 128
NEVER_ENDED = {"PENDING", "RUNNING", "COMPLETING"}
"""States of jobs that are in Slurm's queue."""
FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.2; done"
Object = dict[str, Any]


def container(script: str = "", name: str = "main", **fields: Any) -> Object:
    """A container of the tests' image that runs a script of sh."""
    return {"name": name, "image": IMAGE, "command": ["sh", "-c", script], **fields}


def on_slurm(*containers: Object, **spec: Any) -> Object:
    """The spec of a pod that names the partition `debug`."""
    return {
        "restartPolicy": "Never",
        "nodeSelector": SELECTOR,
        "tolerations": [TOLERATION],
        "terminationGracePeriodSeconds": 5,
        "containers": list(containers),
        **spec,
    }


@dataclass(frozen=True)
class SlurmPod:
    """A pod that was applied, or that a controller made."""

    kubectl: Kubernetes
    login: Host
    name: str
    namespace: str = USER

    def __call__(self, *arguments: str) -> str:
        return self.kubectl(f"--namespace={self.namespace}", *arguments)

    # -- what is said of it

    @property
    def manifest(self) -> Object:
        """Nothing where it does not exist."""
        return self.kubectl.get("pod", self.name, self.namespace)

    @property
    def status(self) -> Object:
        return dict(self.manifest.get("status", {}))

    @property
    def uid(self) -> str:
        return str(self.manifest["metadata"]["uid"])

    def until(self, holds: Callable[[Object], object], what: str) -> Object:
        """The status once this holds of it."""

        status: Object = {}
        for state in self.kubectl.states("pod", self.name, self.namespace, WITHIN_S):
            status = dict(state.get("status", {}))
            if holds(status):
                return status
        raise AssertionError(
            f"it did not come to {what} within {WITHIN_S} s\n{json.dumps(status)}\n{self.events()}"
        )

    def reaches(self, *phases: str) -> Object:
        return self.until(lambda status: status.get("phase") in phases, f"{self.name} being {phases}")

    def ends(self) -> Object:
        return self.reaches("Succeeded", "Failed")

    def is_ready(self) -> Object:
        return self.until(lambda status: condition(status, "Ready").get("status") == "True", "Ready")

    def is_gone(self) -> None:
        eventually(lambda: not self.manifest, what=f"the end of {self.name}")

    def waits(self, reason: str, part: str = "containerStatuses") -> str:
        """The message of a container that waits for this reason, once one does."""

        def messages(status: Object) -> list[str]:
            states = [row["state"].get("waiting", {}) for row in status.get(part, [])]
            return [state.get("message", "") for state in states if state.get("reason") == reason]

        return messages(self.until(messages, reason))[0]

    def has_event(self, reason: str, words: str = "") -> str:
        """The message of an event, once there is one of this reason with these words."""

        def look() -> str | None:
            found = self.events()
            return next((text for kind, text in found if kind == reason and words in text), None)

        return eventually(look, what=f"an event {reason} of {self.name}: {words}")

    def in_slurm(self) -> list[tuple[str, str]]:
        """Every job of this name that Slurm ever had: id and state."""
        name = self.name[:LONGEST_JOB_NAME]
        shown = self.login.run("sacct", SINCE, "-XDnPa", "-o", "JobIDRaw,State", f"--name={name}").stdout
        rows = (line.split("|") for line in shown.splitlines())
        return [(row[0], row[1].split()[0]) for row in rows]

    def has_in_slurm(self, *states: str) -> None:
        """Had one job for each of these states, as soon as the accounting has caught up with slurmctld."""
        eventually(lambda: [state for _, state in self.in_slurm()] == list(states), what=f"jobs {states}")

    def has_no_live_job(self) -> None:
        eventually(lambda: not {state for _, state in self.in_slurm()} & NEVER_ENDED, what="no live job")

    def events(self) -> list[tuple[str, str]]:
        """Reason and message of each, oldest first."""
        return events_of(self.kubectl, "Pod", self.name, self.namespace)

    def log(self, *options: str) -> str:
        return self("logs", self.name, *options)

    @property
    def job_id(self) -> str:
        """From the condition's message: the job that was submitted for it."""
        said = condition(self.status, "redbox.dev/Submitted").get("message", "")
        digits = [word.strip(".,:;") for word in said.split() if word.strip(".,:;").isdigit()]
        assert digits, f"no job id in {said!r}"
        return str(digits[0])

    @property
    def work_dir(self) -> str:
        """The working directory of its job."""
        shown = self.login.run("scontrol", "--oneliner", "show", "job", self.job_id).stdout.split()
        return next(word.removeprefix("WorkDir=") for word in shown if word.startswith("WorkDir="))

    # -- what is done to it

    def delete(self, *options: str) -> None:
        self("delete", "pod", self.name, "--ignore-not-found", "--timeout=90s", *options)


def events_of(kubectl: Kubernetes, kind: str, name: str, namespace: str = USER) -> list[tuple[str, str]]:
    """Reason and message of each, oldest first."""
    chosen = f"involvedObject.name={name},involvedObject.kind={kind}"
    found = kubectl.list("events", namespace, fields=chosen)
    found.sort(key=lambda event: event["metadata"]["creationTimestamp"])
    return [(event["reason"], event["message"]) for event in found]


def condition(status: Object, kind: str) -> Object:
    """The condition of this type; nothing where it is missing."""
    return next((dict(row) for row in status.get("conditions", []) if row["type"] == kind), {})


def ended(status: Object, name: str = "main", part: str = "containerStatuses") -> Object:
    """How a container ended."""
    states = {row["name"]: row["state"] for row in status.get(part, [])}
    assert "terminated" in states.get(name, {}), f"{name} has not ended: {states}"
    return dict(states[name]["terminated"])


@dataclass
class SlurmPods:
    """Those of one test, and whatever else it applied; all deleted at its end."""

    bed: Bed
    kubectl: Kubernetes
    login: Host
    made: list[tuple[str, str]] = field(default_factory=list)

    def apply(self, kind: str, name: str, *, api: str = "v1", **body: Any) -> None:
        """Apply an object of alice's namespace."""
        self.apply_all(manifest(kind, name, api=api, **body))

    def apply_all(self, *manifests: Object) -> None:
        """All at once; on the server, since a client keeps a copy that may be too long for an annotation."""
        self.made += [(each["kind"], each["metadata"]["name"]) for each in manifests]
        self.kubectl.apply(yaml.safe_dump_all(manifests))

    def run(self, *containers: Object, metadata: Object | None = None, **spec: Any) -> SlurmPod:
        """A pod of these containers; fields are as the manifest has them."""
        name = new_name()
        self.apply("Pod", name, metadata=metadata or {}, spec=on_slurm(*containers, **spec))
        return self.of(name)

    def of(self, name: str) -> SlurmPod:
        return SlurmPod(self.kubectl, self.login, name)

    def clean(self) -> None:
        """In the reverse order, claims after the pods that use them; with what controllers have made."""
        for kind, rows in groupby(reversed(self.made), key=lambda row: row[0]):
            names = [name for _, name in rows]
            self.kubectl.delete(kind, *names, namespace=USER, propagationPolicy="Foreground")
        self.made.clear()


def manifest(kind: str, name: str, *, api: str = "v1", **body: Any) -> Object:
    """An object of alice's namespace."""
    metadata = {"name": name, "namespace": USER, **body.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **body}


@contextmanager
def pods_installed(bed: Bed) -> Iterator[None]:
    """Pods run on virtual nodes; in the end all is as it was delivered."""
    SlurmJobs.on(bed)
    with pods_enabled(bed):
        yield


@contextmanager
def pods_enabled(bed: Bed) -> Iterator[None]:
    """The same where Red Box is delivered already."""
    kubectl, login = Kubernetes(bed), bed.host("login")
    login.run("sh", "-c", BUILD, user=USER, timeout=BUILDS_WITHIN_S)
    _allow_volumes(login)
    upgrade(bed, VALUES, ON)
    try:
        eventually(lambda: kubectl.get("node", NODE), what=f"the node {NODE}")
        wait_until_served(kubectl)
        yield
    finally:
        upgrade(bed, f"slurmClusters.{SLURM_CLUSTER}.pods.enabled=false", OFF, IN_A_CONTAINER)
        forget_resourced(kubectl)


@contextmanager
def api_tokens_allowed(bed: Bed) -> Iterator[None]:
    """Pods of alice's namespace get tokens for the API server, which they reach at its own address."""
    on_cluster = f"slurmClusters.{SLURM_CLUSTER}.pods"
    url = f"{on_cluster}.apiServer={api_url(bed.plan)}"
    namespaces = "resourced.pods.apiTokenNamespaces"
    kubectl = Kubernetes(bed)
    try:
        upgrade(bed, f"{on_cluster}.apiTokens=true", url, f"{namespaces}={{{USER}}}")
        wait_until_served(kubectl)
        yield
    finally:
        upgrade(bed, f"{on_cluster}.apiTokens=false", json=f"{namespaces}=[]")
        wait_until_served(kubectl)


def wait_until_served(kubectl: Kubernetes) -> None:
    """A resourced that was started anew has the certificate that the API server trusts, and serves pods."""
    eventually(lambda: _is_served(kubectl), what="the certificate of resourced")
    eventually(lambda: pods_ready(kubectl).get("status") == "True", what="PodsReady")


def pods_ready(kubectl: Kubernetes) -> Object:
    """The condition PodsReady of the SlurmCluster."""
    cluster = kubectl.get("slurmcluster", SLURM_CLUSTER)
    return condition(cluster.get("status", {}), "PodsReady")


def upgrade(bed: Bed, *values: str, json: str | None = None) -> None:
    Helm(bed)(
        *("upgrade", RELEASE, str(CHART), "--reuse-values", "--take-ownership", "--wait", "--timeout=110s"),
        *(f"--set={row}" for row in values),
        *([f"--set-json={json}"] if json else []),
    )


def _is_served(kubectl: Kubernetes) -> bool:
    """Whether the API server takes resourced's certificate, which the operator approves."""
    try:
        return kubectl.raw(f"/api/v1/nodes/{NODE}/proxy/healthz") == "ok"
    except BedError:
        return False


def _allow_volumes(login: Host) -> None:
    """The rule of docs/administrators/volumes.md, before the one of `redbox init`."""
    settings = yaml.safe_load(login.read(login_node.SETTINGS))
    rules = settings["mapping"]["rules"]
    if VOLUMES_RULE not in rules:
        settings["mapping"]["rules"] = [VOLUMES_RULE, *rules]
        login.write(login_node.SETTINGS, yaml.safe_dump(settings, sort_keys=False))
        login_node.restart(login)
