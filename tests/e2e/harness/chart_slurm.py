"""A hosted cluster by `helm install` of deploy/chart-slurm, with red-box on it, in the bed's Kubernetes.

The volumes are what a default StorageClass would make.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redbox_bed.bed import Bed
from redbox_bed.core.commands import run_command
from redbox_bed.core.places import CHECKOUT
from redbox_bed.delivery import ENDS_WITHIN_S
from redbox_bed.delivery import NAMESPACE as OPERATORS
from redbox_bed.prepare.hosted import slurm_values, volumes
from redbox_shared.own_lines import PREFIX
from tests.e2e.harness.hosted_slurm import NAMESPACE, HostedSlurm
from tests.e2e.harness.kubernetes import Kubernetes, Object
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs
from tests.e2e.harness.waiting import eventually

CHART = CHECKOUT / "deploy/chart-slurm"
RELEASE = "slurm"
REDBOX = f"{RELEASE}-redbox"
STORAGE_CLASS = "chart-slurm"
KINDS = ("loginsets", "nodesets", "accountings", "controllers")
KEPT = (
    f"state-{RELEASE}-controller-0",
    f"data-{RELEASE}-database-0",
    f"journal-{REDBOX}-0",
    f"{RELEASE}-homes",
)
USERS = [
    {"name": "alice", "uid": 2001, "namespaces": ["alice"]},
    {"name": "bob", "uid": 2002, "namespaces": ["bob"]},
]


@dataclass(frozen=True)
class ChartSlurm:
    """The release."""

    bed: Bed
    kubernetes: Kubernetes

    @property
    def slurm(self) -> HostedSlurm:
        return HostedSlurm(self.kubernetes)

    def helm(self, *arguments: str, stdin: str | None = None) -> str:
        """In the cluster's namespace."""
        places = self.bed.places
        command = [str(places.state / "bin/helm"), "--kubeconfig", str(places.kubeconfig)]
        command += ["--namespace", NAMESPACE, *arguments]
        return run_command(command, f"`{' '.join(command)}` failed", stdin=stdin, timeout=ENDS_WITHIN_S)

    def install(self, values: Mapping[str, Any], *options: str) -> str:
        """Or upgrade."""
        command = ("upgrade", "--install", RELEASE, str(CHART), "--values=-", *options)
        return self.helm(*command, stdin=json.dumps(values))

    def manifests(self, values: Mapping[str, Any]) -> str:
        """As Argo CD renders them: without a look at the cluster, and without hooks."""
        return self.helm(
            "template", RELEASE, str(CHART), "--values=-", "--no-hooks", stdin=json.dumps(values)
        )

    def is_ready(self, cluster: str = RELEASE) -> None:
        """SlurmJobs run from now on."""

        def look() -> bool:
            found = self.slurm.status("nodeset", "cpu")
            return self._reachable(cluster) and 0 < found.get("desired", 0) == found.get("slurmIdle")

        eventually(look, what=f"a SlurmCluster {cluster} with idle nodes")

    def _reachable(self, cluster: str) -> bool:
        status = self.kubernetes.get("slurmclusters.redbox.dev", cluster).get("status", {})
        conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
        return conditions.get("Reachable") == "True"

    def run(self, batch: str, namespace: str = "alice", **spec: Any) -> tuple[str, str]:
        """A SlurmJob to its end: its phase, and its log by kubectl, without lines of our own."""
        job = self.submit(batch, namespace, **spec)
        phase = str(job.finishes()["phase"])
        lines = job.log().splitlines(keepends=True)
        return phase, "".join(line for line in lines if not line.startswith(PREFIX))

    def submit(self, batch: str, namespace: str = "alice", **spec: Any) -> Applied:
        jobs = SlurmJobs(self.kubernetes, self.bed.host("login"))
        return jobs.apply(batch, namespace=namespace, cluster=RELEASE, **spec)


def bed_values(kubernetes: Kubernetes) -> Object:
    """With two users."""
    return {**slurm_values(kubernetes), "users": USERS}


def merged(values: Object, more: Mapping[str, Any]) -> Object:
    """As Helm merges two files of values."""
    made = dict(values)
    for name, new in more.items():
        old = made.get(name)
        made[name] = merged(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
    return made


@contextmanager
def storage(bed: Bed, kubernetes: Kubernetes) -> Iterator[None]:
    """The default StorageClass, with a volume for each claim of the chart."""
    made = list(volumes(bed, STORAGE_CLASS))
    for body in made:
        kubernetes.apply(json.dumps(body))
    try:
        yield
    finally:
        kubernetes.delete("persistentvolumeclaim", *KEPT, namespace=NAMESPACE)
        for body in reversed(made):
            kubernetes.delete(str(body["kind"]), body["metadata"]["name"])  # type: ignore[index]


@contextmanager
def chart_slurm(
    bed: Bed, kubernetes: Kubernetes, values: Mapping[str, Any] | None = None, options: Sequence[str] = ()
) -> Iterator[ChartSlurm]:
    """Installed; at the end it is uninstalled, and what outlives it is deleted."""
    with storage(bed, kubernetes):
        chart = ChartSlurm(bed, kubernetes)
        until_operator_is_new(kubernetes)
        chart.install(merged(bed_values(kubernetes), values or {}), *options)
        try:
            yield chart
        finally:
            remove(chart)


def until_operator_is_new(kubernetes: Kubernetes) -> None:
    """That of SlurmJobs may be older than the bed's DNS, and would not find red-box's Service."""
    found = kubernetes.list("pod", OPERATORS, labels="app.kubernetes.io/name=redbox-operator")
    kubernetes.delete("pod", *(pod["metadata"]["name"] for pod in found), namespace=OPERATORS)
    kubernetes("rollout", "status", "deployment/redbox-operator", f"--namespace={OPERATORS}", "--timeout=60s")


def remove(chart: ChartSlurm) -> None:
    """Without its hook, which asks what becomes of the workers."""
    kubernetes = chart.kubernetes
    for namespace in ("alice", "bob"):  # the SlurmCluster waits for those that have not ended
        names = [job["metadata"]["name"] for job in kubernetes.list("slurmjobs.redbox.dev", namespace)]
        kubernetes.delete("slurmjobs.redbox.dev", *names, namespace=namespace)
    for kind in KINDS:
        found = kubernetes.list(f"{kind}.slurm.redbox.dev", NAMESPACE)
        names = [body["metadata"]["name"] for body in found]
        kubernetes.delete(f"{kind}.slurm.redbox.dev", *names, namespace=NAMESPACE)
    chart.helm("uninstall", RELEASE, "--ignore-not-found", "--no-hooks", "--wait")
    kubernetes.delete("secret", REDBOX, namespace=NAMESPACE)
    kubernetes.delete("configmap", REDBOX, namespace=NAMESPACE)
