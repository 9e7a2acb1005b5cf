"""A Slurm that redbox-hosting runs in the bed's Kubernetes, as its chart installs it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.plan import Role
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import CHART, RELEASE, Helm, deliver
from redbox_bed.images.mariadb_image import mariadb_image
from redbox_bed.images.node_images import import_missing
from redbox_bed.images.slurm_image import slurm_image
from redbox_bed.kube.cluster_dns import ensure_dns
from tests.e2e.harness.kubernetes import Kubernetes, Object
from tests.e2e.harness.volumes import volume_of
from tests.e2e.harness.waiting import eventually

NAMESPACE = "hpc"
CLUSTER, WORKERS = "slurm", "cpu"
SLURMCTLD = f"{CLUSTER}-controller-0"
VERSION = "slurm.redbox.dev/v1alpha1"
OPERATOR = "app.kubernetes.io/name=redbox-hosting"
WORKER_LIMITS = {"cpu": "100m", "memory": "512Mi"}
PROTECTED, ROLE = "slurm.redbox.dev/protected", "slurm.redbox.dev/role"


@contextmanager
def hosting(bed: Bed, release: str, *, database: bool = False) -> Iterator[Kubernetes]:
    """The chart with hosted Slurm for one namespace, with this release of Slurm; with an image of MariaDB."""
    deliver(bed, Progress.silent(), unless_current=True)
    image = slurm_image(bed.places, Progress.silent(), release)
    images = [image, *([mariadb_image(bed.places, Progress.silent())] if database else [])]
    ensure_dns(bed, Progress.silent())
    for spec in bed.plan.of_role(Role.NODE):
        import_missing(bed.host(spec.name), images)
    kubernetes = Kubernetes(bed)
    enforce = {"pod-security.kubernetes.io/enforce": "baseline"}
    metadata = {"name": NAMESPACE, "labels": enforce}
    kubernetes.delete("namespace", NAMESPACE)  # it may still end
    kubernetes.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    values = {
        "enabled": True,
        "namespaces": [NAMESPACE],
        "nodes": "read",
        "slurmImage": image.name,
        "databaseImage": images[-1].name if database else "",
    }
    upgrade(bed, values)
    try:
        yield kubernetes
    finally:
        upgrade(bed, {"enabled": False})
        kubernetes.delete("namespace", NAMESPACE, wait=False)


def upgrade(bed: Bed, hosting_values: Object) -> None:
    """The values of `hosting` that change."""
    Helm(bed)(
        *("upgrade", RELEASE, str(CHART), "--reuse-values", "--take-ownership", "--wait", "--timeout=110s"),
        "--values=-",
        stdin=json.dumps({"hosting": hosting_values}),
    )


@dataclass(frozen=True)
class HostedSlurm:
    """A Controller and a NodeSet, seen by kubectl and by Slurm's own commands in their pods."""

    kubernetes: Kubernetes

    def run(self, *command: str, pod: str = SLURMCTLD) -> str:
        """A command in a pod, as the pod's own user; its stdout."""
        return self.kubernetes("exec", f"--namespace={NAMESPACE}", pod, "--", *command).strip()

    def submit(self, script: str, *options: str) -> str:
        """The job's id."""
        return self.run("sbatch", "--parsable", "--chdir=/tmp", *options, f"--wrap={script}")

    def job(self, job: str) -> dict[str, str]:
        """The fields that scontrol shows."""
        return _fields(self.run("scontrol", "--oneliner", "show", "job", job))

    def reaches(self, job: str, state: str) -> dict[str, str]:
        def look() -> dict[str, str] | None:
            found = self.job(job)
            return found if found["JobState"] == state else None

        return eventually(look, what=f"{state} of job {job}")

    def scale(self, replicas: int) -> None:
        self.change("nodeset", WORKERS, {"replicas": replicas})

    def has_idle(self, count: int) -> None:
        """All workers have a node that is idle."""
        eventually(
            lambda: (self.status("nodeset", WORKERS).get("slurmIdle"), len(self.workers())) == (count, count),
            what=f"{count} idle nodes",
        )

    def change(self, kind: str, name: str, spec: Object) -> None:
        self.kubernetes.patch(f"{kind}s.slurm.redbox.dev", name, {"spec": spec}, NAMESPACE)

    def status(self, kind: str, name: str) -> Object:
        found: Object = self.kubernetes.get(f"{kind}s.slurm.redbox.dev", name, NAMESPACE).get("status", {})
        return found

    def condition(self, kind: str, name: str, condition: str) -> tuple[str, str]:
        """Status and message."""
        for one in self.status(kind, name).get("conditions", []):
            if one["type"] == condition:
                return one["status"], one["message"]
        return "", ""

    def is_ready(self) -> bool:
        """Slurm runs the wanted configuration."""
        generation = self.kubernetes.get("controllers.slurm.redbox.dev", CLUSTER, NAMESPACE)["metadata"]
        seen = self.status("controller", CLUSTER).get("observedGeneration")
        return (
            seen == generation["generation"] and self.condition("controller", CLUSTER, "Ready")[0] == "True"
        )

    def workers(self) -> dict[str, Object]:
        """The pods that do not end, by name."""
        found = self.kubernetes.list("pod", NAMESPACE, labels=f"slurm.redbox.dev/nodeset={WORKERS}")
        return {pod["metadata"]["name"]: pod for pod in found if not pod["metadata"].get("deletionTimestamp")}

    def pods(self, labels: str) -> list[str]:
        """The names of those that do not end."""
        found = self.kubernetes.list("pod", NAMESPACE, labels=labels)
        return [each["metadata"]["name"] for each in found if not each["metadata"].get("deletionTimestamp")]

    def process(self, name: str, pod: str) -> str:
        """The pid of the only process of that name; nothing while there is none or a second one."""
        found = self.run("sh", "-c", f"grep -lx {name} /proc/[0-9]*/comm || true", pod=pod).split()
        return found[0].split("/")[2] if len(found) == 1 else ""

    def node(self, name: str) -> dict[str, str]:
        """The fields that scontrol shows."""
        return _fields(self.run("scontrol", "--oneliner", "show", "node", name))

    def restarts(self, pod: str) -> int:
        statuses = self.kubernetes.get("pod", pod, NAMESPACE)["status"]["containerStatuses"]
        return sum(int(status["restartCount"]) for status in statuses)


def kill_container(bed: Bed, pod: Object) -> None:
    """The first process of a worker, which nothing in its container can kill."""
    mark = f"POD_UID={pod['metadata']['uid']}".encode()
    (first,) = (
        pid
        for pid in bed.cgroups.members(pod["spec"]["nodeName"])
        if _content(pid, "status").partition(b"NSpid:")[2].partition(b"\n")[0].endswith(b"\t1")
        and mark in _content(pid, "environ").split(b"\0")
    )
    os.kill(first, signal.SIGKILL)


def _content(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _fields(shown: str) -> dict[str, str]:
    return dict(field.split("=", 1) for field in shown.split() if "=" in field)


@contextmanager
def hosted_slurm(bed: Bed, kubernetes: Kubernetes, replicas: int) -> Iterator[HostedSlurm]:
    """From two manifests to idle nodes."""
    with applied_slurm(bed, kubernetes, replicas) as slurm:
        slurm.has_idle(replicas)
        yield slurm


@contextmanager
def applied_slurm(
    bed: Bed, kubernetes: Kubernetes, replicas: int, limits: Object = WORKER_LIMITS, *patches: Object
) -> Iterator[HostedSlurm]:
    """Two manifests; at the end all is deleted, as its administrator would, and then Slurm's state.

    `patches` are merged into the manifests' specs, in their order.
    """
    volume = f"{NAMESPACE}-state"
    volume_of(bed, volume, storageClassName=volume)
    both = manifests(replicas, storage_class=volume, limits=limits)
    for each, patch in zip_longest(both, patches):
        kubernetes.apply(json.dumps({**each, "spec": {**each["spec"], **(patch or {})}}))
    try:
        yield HostedSlurm(kubernetes)
    finally:
        cancel_jobs(kubernetes)
        kubernetes.delete("nodesets.slurm.redbox.dev", WORKERS, namespace=NAMESPACE)
        kubernetes.delete("controllers.slurm.redbox.dev", CLUSTER, namespace=NAMESPACE)
        kubernetes.delete("persistentvolumeclaim", f"state-{SLURMCTLD}", namespace=NAMESPACE)
        kubernetes.delete("persistentvolume", volume)


def cancel_jobs(kubernetes: Kubernetes) -> None:
    """Those that a failed test left: a deleted NodeSet's workers end after their jobs."""
    with suppress(BedError):  # a failed test may have left no slurmctld, too
        HostedSlurm(kubernetes).run(
            "sh", "-c", "squeue --noheader --format=%A | xargs --no-run-if-empty scancel"
        )


def manifests(replicas: int, *, storage_class: str, limits: Object) -> Iterator[Object]:
    state = {"storageClassName": storage_class, "resources": {"requests": {"storage": "1Gi"}}}
    yield {
        "apiVersion": VERSION,
        "kind": "Controller",
        "metadata": {"name": CLUSTER, "namespace": NAMESPACE},
        "spec": {
            "persistence": state,
            "redbox": {"maxNodes": 64, "partitions": [{"name": "all", "default": True}]},
        },
    }
    yield {
        "apiVersion": VERSION,
        "kind": "NodeSet",
        "metadata": {"name": WORKERS, "namespace": NAMESPACE},
        "spec": {
            "controllerRef": {"name": CLUSTER},
            "replicas": replicas,
            "oversubscribeNode": True,
            "slurmd": {"resources": {"limits": limits}},
        },
    }
