"""What the pages for users need of the bed beyond an installation, as the demo gives it.

Sessions and volumes at red-box, a default StorageClass with some volumes, images, and `kubectl slurm`. Pods
are turned on by the chart, which the demo shows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from redbox_bed import docker_hub, login_node
from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role, Source
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import KUBERNETES_NAME, NAMESPACE, Kubernetes
from redbox_bed.hosts.host import Host
from redbox_bed.kube.existing import link_program

STORAGE_CLASS = "local"
VOLUMES = 4
FOLDER = "/var/lib/redbox-volumes"
VOLUMES_RULE = {
    "cluster": KUBERNETES_NAME,
    "namespaces": [NAMESPACE],
    "service_accounts": ["redbox-resourced"],
    "roles": ["operator", "reader", "volumes"],
}
"""As docs/administrators/volumes.md has it, before the one of `redbox init`."""


def prepare(bed: Bed, progress: Progress) -> None:
    """Again, it does what is missing."""
    with progress.step("sessions, and folders for claims of pods, at red-box"):
        allow_sessions_and_volumes(bed.host("login"))
    with progress.step("images of the examples, in place of Docker Hub"):
        docker_hub.up(bed, progress)
    if bed.plan.options.kube is Source.OWN:
        with progress.step("volumes"):
            _make_volumes(bed)
    link_program(bed.places, Path(sys.executable).with_name("kubectl-slurm"))


def allow_sessions_and_volumes(login: Host) -> None:
    """In red-box's settings; it is restarted if they change."""
    settings = yaml.safe_load(login.read(login_node.SETTINGS))
    rules = settings["mapping"]["rules"]
    if VOLUMES_RULE in rules and settings.get("exec") == {"enabled": True}:
        return
    if VOLUMES_RULE not in rules:
        settings["mapping"]["rules"] = [VOLUMES_RULE, *rules]
    settings["exec"] = {"enabled": True}
    login.write(login_node.SETTINGS, yaml.safe_dump(settings, sort_keys=False))
    login_node.restart(login)


def take_away_volumes(bed: Bed) -> None:
    """The StorageClass and its volumes, so that claims without a class have none again."""
    names = [f"{STORAGE_CLASS}-{number}" for number in range(VOLUMES)]
    Kubernetes(bed)("delete", "--ignore-not-found", "--wait=false", f"storageclass/{STORAGE_CLASS}")
    Kubernetes(bed)("delete", "--ignore-not-found", "--wait=false", "persistentvolume", *names)


def _make_volumes(bed: Bed) -> None:
    """Folders of a node: each serves one claim, and the next one after this was done again."""
    kubernetes, node = Kubernetes(bed), bed.host(bed.plan.of_role(Role.NODE)[0].name)
    kubernetes.apply(json.dumps(_storage_class()))
    found = json.loads(kubernetes("get", "persistentvolumes", "--output=json"))["items"]
    phases = {volume["metadata"]["name"]: volume["status"].get("phase") for volume in found}
    for name, volume in _volumes(node.name):
        if phases.get(name) in {"Available", "Bound"}:
            continue
        kubernetes("delete", "--ignore-not-found", "persistentvolume", name)
        folder = f"{FOLDER}/{name}"
        node.run("sh", "-c", f"rm -rf {folder}; mkdir -p {folder}; chmod 777 {folder}")
        kubernetes.apply(json.dumps(volume))


def _storage_class() -> dict[str, object]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _volumes(node: str) -> Iterator[tuple[str, dict[str, object]]]:
    here = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]
    for number in range(VOLUMES):
        name = f"{STORAGE_CLASS}-{number}"
        # No volume has both; the journal of a personal red-box asks for the first.
        mode = "ReadWriteOnce" if number else "ReadWriteOncePod"
        yield (
            name,
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name},
                "spec": {
                    "accessModes": [mode],
                    "storageClassName": STORAGE_CLASS,
                    "capacity": {"storage": "1Gi"},
                    "local": {"path": f"{FOLDER}/{name}"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}},
                },
            },
        )
