"""Volumes of the bed: folders of one Kubernetes node."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role
from redbox_bed.hosts.host import Host
from tests.e2e.harness.kubernetes import Kubernetes

NODE = "k1"
FOLDER = "/var/lib/redbox-volumes"
CLAIM = "results"
VOLUME = f"{FOLDER}/{CLAIM}"
"""The folder of alice's claim, which the fixture `volume` makes."""


def claim_of(bed: Bed, namespace: str, name: str) -> Host:
    """A claim that is bound; the folder `FOLDER/NAME` of the host that is returned is empty at first."""
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    node = volume_of(bed, name, claimRef=reference)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    Kubernetes(bed).apply(yaml.safe_dump(claim))
    return node


def volume_of(bed: Bed, name: str, **more: object) -> Host:
    """A volume that waits for a claim; its folder is empty at first."""
    node = bed.host(NODE)
    folder = f"{FOLDER}/{name}"
    node.run("sh", "-c", f"rm -rf {folder}; mkdir -p {folder}; chmod 777 {folder}")
    here = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "capacity": {"storage": "1Gi"},
        "local": {"path": folder},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}},
        **more,
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    Kubernetes(bed).apply(yaml.safe_dump(volume))
    return node


def claim_of_all(bed: Bed, namespace: str, name: str) -> Path:
    """A claim that is bound to a folder which all nodes have; where it is on this machine, empty at first."""
    kubernetes, hosts = Kubernetes(bed), [spec.name for spec in bed.plan.of_role(Role.NODE)]
    folder = bed.places.home(bed.host(NODE).spec.cluster) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o777)
    there = [{"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}]
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    for_all = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume_of(
        bed,
        name,
        **for_all,
        claimRef=reference,
        local={"path": f"/home/{name}"},
        nodeAffinity={"required": {"nodeSelectorTerms": [{"matchExpressions": there}]}},
    )
    spec = {**for_all, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": namespace}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    kubernetes.apply(yaml.safe_dump(claim))
    return folder
