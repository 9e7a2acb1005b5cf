"""What a Slurm in pods needs of the bed: its images, the DNS of the cluster, and volumes of a default class.

An administrator's Kubernetes has the last two, and pulls the first.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import NAMESPACE, Kubernetes
from redbox_bed.images.mariadb_image import mariadb_image
from redbox_bed.images.node_images import REGISTRY, import_missing
from redbox_bed.images.slurm_image import slurm_image
from redbox_bed.kube import kube_cluster
from redbox_bed.kube.cluster_dns import ensure_dns

RELEASE = "26.05"
STORAGE_CLASS = "hosted-slurm"
FOLDER = "/var/lib/redbox-volumes"
VOLUMES = {
    "state": "ReadWriteOnce",
    "data": "ReadWriteOnce",
    "journal": "ReadWriteOncePod",
    "homes": "ReadWriteMany",
}
WORKER, LOGIN = {"cpu": "100m", "memory": "512Mi"}, {"cpu": "200m", "memory": "256Mi"}
VALUES = "hosted.yaml"
"""In the bed's folder: values of both charts, which differ from what an administrator would give."""


def prepare(bed: Bed, progress: Progress) -> None:
    """Again, it does what is missing; volumes that were used are made again, empty."""
    kubernetes = Kubernetes(bed)
    with progress.step("images of Slurm and MariaDB"):
        images = [slurm_image(bed.places, progress, RELEASE), mariadb_image(bed.places, progress)]
        for node in bed.plan.of_role(Role.NODE):
            import_missing(bed.host(node.name), images)
    had_dns = kube_cluster.has_dns(bed)
    ensure_dns(bed, progress)
    if not had_dns:  # pods have the resolver that there was when they started
        kubernetes("rollout", "restart", "deployment", f"--namespace={NAMESPACE}")
    with progress.step("volumes"):
        _make_volumes(bed, kubernetes)
    hosting = {"slurmImage": images[0].name, "databaseImage": images[1].name}
    values = {"operators": {"hosting": hosting}, "slurm": slurm_values(kubernetes)}
    for name, content in values.items():
        (bed.places.state / f"{name}-{VALUES}").write_text(yaml.safe_dump(content))


def slurm_values(kubernetes: Kubernetes) -> dict[str, object]:
    """Of deploy/chart-slurm: the bed has few cores, and an issuer of its own."""
    return {
        "images": {"registry": REGISTRY, "tag": "dev"},
        "nodeSets": {"cpu": {"slurmd": {"resources": {"limits": WORKER}}}},
        "login": {"login": {"resources": {"limits": LOGIN}}},
        "redbox": {"issuer": kubernetes.issuer()},
    }


def volumes(bed: Bed, prefix: str = STORAGE_CLASS) -> Iterator[dict[str, object]]:
    """The default StorageClass, and a volume for each claim of a cluster; their folders are empty."""
    nodes = [spec.name for spec in bed.plan.of_role(Role.NODE)]
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": prefix,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    for name, mode in VOLUMES.items():
        is_shared = mode == "ReadWriteMany"
        folder = _shared_folder(bed, f"{prefix}-{name}") if is_shared else _folder(bed, f"{prefix}-{name}")
        hosts = nodes if is_shared else nodes[:1]
        here = [{"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}]
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{prefix}-{name}"},
            "spec": {
                "accessModes": [mode],
                "storageClassName": prefix,
                "capacity": {"storage": "16Gi"},
                "local": {"path": folder},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}},
            },
        }


def _make_volumes(bed: Bed, kubernetes: Kubernetes) -> None:
    """Unless they are in use."""
    listed = json.loads(kubernetes("get", "persistentvolumes", "--output=json"))["items"]
    phases = {each["metadata"]["name"]: each["status"].get("phase") for each in listed}
    names = [f"{STORAGE_CLASS}-{name}" for name in VOLUMES]
    if all(phases.get(name) in {"Available", "Bound"} for name in names):
        return
    kubernetes("delete", "persistentvolume", "--ignore-not-found", *names)
    for body in volumes(bed):
        kubernetes.apply(json.dumps(body))


def _folder(bed: Bed, name: str) -> str:
    """Of the first node."""
    folder, node = f"{FOLDER}/{name}", bed.plan.of_role(Role.NODE)[0].name
    bed.host(node).run("sh", "-c", f"rm -rf {folder}; mkdir -p {folder}; chmod 777 {folder}")
    return folder


def _shared_folder(bed: Bed, name: str) -> str:
    """Which all nodes have."""
    folder = bed.places.home(bed.plan.of_role(Role.NODE)[0].cluster) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return f"/home/{name}"
