"""Virtual delivery on the bed: resourced in the network of a node, red-box on the login host, and companions.

The operator's part is played here, so that a test can also play it wrong: a SlurmJob, the ConfigMap with its
request, the pod, and the status that names the pod. resourced is a process of this machine in the network of
k1, as the service account that the chart makes: so it can be killed and started again within a second.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.delivery import KUBERNETES_NAME, NAMESPACE, TENANTS
from redbox_bed.hosts.host import Host
from redbox_bed.login_node import Rule
from redbox_operator.api.crds import all_crds
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.resourced_process import NAME, rendered, virtual_nodes
from tests.e2e.harness.waiting import eventually

CLUSTER = "hpc1"
HOST = "k1"
PORT = 11250
HEALTH_PORT = 18080
TOLERATIONS = [
    {"key": "redbox.dev/slurm", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
]
Object = dict[str, Any]


@dataclass
class InBed:
    """resourced, as a process in the network of one of the bed's nodes."""

    bed: Bed
    folder: Path
    options: Sequence[str] = ()
    has_virtual_nodes: bool = True
    """Without, it needs no certificate."""
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return self.bed.plan.host(HOST).address

    @property
    def log(self) -> str:
        return (self.folder / "resourced.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def entering(self) -> list[str]:
        """What is put before a command, to have it run in that node's network."""
        return ["nsenter", f"--target={self.bed.host(HOST).pid()}", "--net"]

    def launch(self) -> None:
        """Start it, and do not wait."""
        command = (
            *(*self.entering(), sys.executable, "-m", "redbox_resourced", "run", f"--namespace={NAMESPACE}"),
            *(f"--ip={self.address}", f"--port={PORT}", f"--health-port={HEALTH_PORT}"),
            *(f"--state={self.folder}", *self.options),
        )
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig())}
        with (self.folder / "resourced.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def start(self) -> None:
        """Start it, approve of its certificate, and return when it serves with that; or end it."""
        self.launch()
        try:
            eventually(self._is_ready)
        except AssertionError:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill -9, at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=60)
            self._process = None

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"resourced has ended: {self.log[-3000:]}"
        approve(Kubernetes(self.bed))
        url = f"http://127.0.0.1:{HEALTH_PORT}/readyz"
        asked = subprocess.run([*self.entering(), "curl", "-sf", url], capture_output=True, check=False)
        is_certified = not self.has_virtual_nodes or (self.folder / "serving.crt").exists()
        return asked.returncode == 0 and is_certified

    def _kubeconfig(self) -> Path:
        """The administrator's, with the service account in place of the administrator, from within."""
        kubernetes = Kubernetes(self.bed)
        config = yaml.safe_load(self.bed.places.kubeconfig.read_text())
        token = kubernetes("create", "token", NAME, f"--namespace={NAMESPACE}", "--duration=12h").strip()
        config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
        config["clusters"][0]["cluster"]["server"] = f"https://{self.bed.plan.host('k0').address}:6443"
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path


def approve(kubernetes: Kubernetes) -> None:
    """As an administrator who has read the Node's condition."""
    waiting = [
        request["metadata"]["name"]
        for request in kubernetes.list("csr")
        if request["spec"]["signerName"] == "kubernetes.io/kubelet-serving" and not request["status"]
    ]
    if waiting:
        kubernetes("certificate", "approve", *waiting)


@dataclass(frozen=True)
class Companion:
    """A SlurmJob of a test, and its pod."""

    kubernetes: Kubernetes
    namespace: str
    name: str
    uid: str
    attempt: int = 1

    @property
    def pod_name(self) -> str:
        return f"{self.name}-job" + (f"-{self.attempt}" if self.attempt > 1 else "")

    @property
    def pod(self) -> Object:
        return self.kubernetes.get("pod", self.pod_name, self.namespace)

    def reaches(self, *phases: str) -> Object:
        """The pod's status, once it is there."""
        return eventually(lambda: status if (status := self.pod["status"])["phase"] in phases else None)

    def has_condition(self, reason: str, words: str = "") -> Object:
        """The pod's condition Submitted, once it has that reason and those words in its message."""
        return eventually(
            lambda: next(
                (
                    one
                    for one in self.pod["status"].get("conditions", [])
                    if one["type"] == "redbox.dev/Submitted"
                    and one.get("reason") == reason
                    and words in one["message"]
                ),
                None,
            )
        )

    def logs(self, *options: str) -> str:
        return self.kubernetes("logs", f"--namespace={self.namespace}", self.pod_name, *options)


def state_of(status: Object) -> Object:
    """Of its one container."""
    state: Object = status["containerStatuses"][0]["state"]
    return state


@dataclass
class Stand:
    """All of it."""

    bed: Bed
    kubernetes: Kubernetes
    resourced: InBed
    made: list[Companion] = field(default_factory=list)

    @property
    def login(self) -> Host:
        return self.bed.host("login")

    def slurm_job(self, script: str, namespace: str = "alice", **spec: Any) -> Companion:
        """A SlurmJob alone."""
        name = f"v-{uuid4().hex[:8]}"
        spec = {"cluster": CLUSTER, "batch": script, **spec}
        made = self._create(
            "redbox.dev/v1alpha1", "SlurmJob", {"name": name, "namespace": namespace}, spec=spec
        )
        companion = Companion(self.kubernetes, namespace, name, made["metadata"]["uid"])
        self.made.append(companion)
        return companion

    def submit(self, script: str, namespace: str = "alice", **request: Any) -> Companion:
        """A SlurmJob, and what the operator makes of it."""
        companion = self.slurm_job(script, namespace)
        self.attempt(companion, script, **request)
        return companion

    def attempt(self, companion: Companion, script: str, **request: Any) -> None:
        """ConfigMap, pod, and the status that names the pod."""
        body = json.dumps({"batch": script, "name": companion.name, **request})
        self.config_map(companion, body)
        pod = self.pod(companion)
        self.name_companion(companion, pod["metadata"]["uid"], body)

    def config_map(self, companion: Companion, body: str) -> None:
        data = {"request.json": body}
        self._create("v1", "ConfigMap", self._metadata(companion), immutable=True, data=data)

    def pod(self, companion: Companion, **spec: Any) -> Object:
        """As the operator makes it for a virtual node; the image is one that nobody has."""
        container = {
            "name": "companion",
            "image": "bed.local/nowhere:1",
            "env": [{"name": "REDBOX_ATTEMPT", "value": str(companion.attempt)}, *spec.pop("env", [])],
        }
        selector = {"redbox.dev/cluster": CLUSTER, "redbox.dev/partition": "debug"}
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "nodeSelector": selector,
            "tolerations": TOLERATIONS,
            "containers": [container],
            **spec,
        }
        return self._create("v1", "Pod", self._metadata(companion), spec=spec)

    def name_companion(self, companion: Companion, uid: str, body: str) -> None:
        """What makes a pod the companion."""
        digest = f"sha256:{hashlib.sha256(body.encode()).hexdigest()}"
        named = {
            "name": companion.pod_name,
            "uid": uid,
            "attempt": companion.attempt,
            "request": digest,
        }
        change = {"status": {"companion": named}}
        self.kubernetes.patch("slurmjob", companion.name, change, companion.namespace, subresource="status")

    def jobs_in_slurm(self, name: str, user: str = "alice") -> list[str]:
        """The ids of all jobs that Slurm has, or had, of that name."""
        said = self.login.run(
            "sacct", SINCE, "-X", "-n", "-P", "-o", "JobID", f"--name={name}", user=user
        ).stdout
        return said.split()

    def remove(self, companion: Companion) -> None:
        """Cancel and delete, as the operator's finalizer would have it."""
        self.login.run("scancel", f"--name={companion.name}", check=False)
        self.kubernetes.delete("slurmjob", companion.name, namespace=companion.namespace, wait=False)

    def _metadata(self, companion: Companion) -> Object:
        owner = {
            "apiVersion": "redbox.dev/v1alpha1",
            "kind": "SlurmJob",
            "name": companion.name,
            "uid": companion.uid,
            "controller": True,
        }
        labels = {"redbox.dev/slurmjob-uid": companion.uid}
        return {
            "name": companion.pod_name,
            "namespace": companion.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        }

    def _create(self, api_version: str, kind: str, metadata: Object, **rest: Any) -> Object:
        return self.kubernetes.create({"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest})


@contextmanager
def virtual_stand(bed: Bed, folder: Path, *options: str) -> Iterator[Stand]:
    """Both sides, introduced to each other, and resourced serving."""
    kubernetes = Kubernetes(bed)
    introduce(bed, kubernetes)
    resourced = InBed(bed, folder, options)
    stand = Stand(bed, kubernetes, resourced)
    try:
        resourced.start()
        yield stand
    finally:
        for companion in stand.made:
            stand.remove(companion)
        resourced.stop()
        kubernetes.delete("slurmcluster", CLUSTER, wait=False)
        kubernetes.delete("node", *virtual_nodes(kubernetes))
        bed.host("login").kill(login_node.SERVICE)


def introduce(bed: Bed, kubernetes: Kubernetes) -> None:
    """red-box on the login host; the SlurmCluster, and resourced's account and rights by the chart."""
    login = bed.host("login")
    login_node.install(login, bed.places)
    manifest = login_node.introduce(
        login,
        name=CLUSTER,
        cluster=KUBERNETES_NAME,
        issuer=kubernetes.issuer(),
        keys=kubernetes.keys(),
        rules=[Rule(namespace=name, user=name) for name in TENANTS],
    )
    login_node.restart(login)
    install(kubernetes, bed)
    cluster = yaml.safe_load(manifest)
    cluster["spec"]["delivery"] = "Virtual"
    kubernetes.apply(json.dumps(cluster))


def install(kubernetes: Kubernetes, bed: Bed) -> None:
    """Kinds, namespaces, and resourced's account and rights as the chart has them."""
    kubernetes.apply(yaml.safe_dump_all(all_crds()))
    kubernetes(
        "wait", "--for=condition=Established", "crd/slurmclusters.redbox.dev", "crd/slurmjobs.redbox.dev"
    )
    for name in (NAMESPACE, *TENANTS):
        kubernetes.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
    kubernetes.apply(rendered(bed))
