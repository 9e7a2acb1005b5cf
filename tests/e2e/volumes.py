"""A volume of the bed: a folder of one Kubernetes node, and a claim for it."""

from __future__ import annotations

import yaml

from redbox_bed.bed import Bed
from redbox_bed.delivery import Kubernetes
from redbox_bed.host import Host

NODE = "k1"
FOLDER = "/var/lib/redbox-volumes"


def claim_of(bed: Bed, namespace: str, name: str) -> Host:
    """A claim that is bound; the folder `FOLDER/NAME` of the host that is returned is empty at first."""
    node = bed.host(NODE)
    folder = f"{FOLDER}/{name}"
    node.run("sh", "-c", f"rm -rf {folder}; mkdir -p {folder}; chmod 777 {folder}")
    here = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]
    both = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = {
        **both,
        "capacity": {"storage": "1Gi"},
        "local": {"path": folder},
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": name,
        },
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}},
    }
    claim = {**both, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    Kubernetes(bed).apply(
        yaml.safe_dump_all(
            [
                {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": claim,
                },
            ]
        )
    )
    return node
