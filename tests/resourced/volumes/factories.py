"""Claims, classes, volumes and nodes as the API server has them."""

from __future__ import annotations

from typing import Any

from redbox_clusters.names import FINALIZER_VOLUME
from redbox_kube.api.objects import Object
from redbox_resourced.nodes.manifest import new_node
from redbox_resourced.volumes.names import (
    DRIVER,
    PROVISIONED_BY,
    PROVISIONER,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
)

UID = "0d9a6f0e-7f3b-4a52-9d1e-111111111111"
FOLDER = f"/home/alice/redbox/volumes/alice-data-{UID}"


def claim(*, node: str = "hpc1.debug", bound: bool = False, account: str = "", **spec: Any) -> Object:
    annotations = {STORAGE_PROVISIONER[0]: PROVISIONER}
    annotations |= {SELECTED_NODE: node} if node else {}
    annotations |= {"redbox.dev/service-account": account} if account else {}
    return {
        "metadata": {
            "name": "data",
            "namespace": "alice",
            "uid": UID,
            "resourceVersion": "7",
            "annotations": annotations,
        },
        "spec": {
            "storageClassName": "redbox",
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "5Gi"}},
            **({"volumeName": f"pvc-{UID}"} if bound else {}),
            **spec,
        },
    }


def storage_class(
    *, name: str = "redbox", waits: bool = True, provisioner: str = PROVISIONER, **fields: Any
) -> Object:
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    return {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        "reclaimPolicy": "Delete",
        **fields,
    }


def volume(*, phase: str = "Bound", policy: str = "Delete", **spec: Any) -> Object:
    """A volume of ours, bound to `claim()`."""
    attributes = {"cluster": "hpc1", "path": FOLDER, "serviceAccount": "default"}
    return {
        "metadata": {
            "name": f"pvc-{UID}",
            "annotations": {PROVISIONED_BY: PROVISIONER},
            "finalizers": [FINALIZER_VOLUME],
        },
        "spec": {
            "persistentVolumeReclaimPolicy": policy,
            "claimRef": {"namespace": "alice", "name": "data", "uid": UID},
            "csi": {"driver": DRIVER, "volumeHandle": UID, "volumeAttributes": attributes},
            **spec,
        },
        "status": {"phase": phase},
    }


def virtual_node(cluster: str = "hpc1", partition: str = "debug") -> Object:
    return new_node(cluster, partition)


def consumer(account: str = "default", claim: str = "data", phase: str = "Pending") -> Object:
    """A pod that uses the claim."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return {
        "metadata": {"name": f"pod-of-{account}", "namespace": "alice", "uid": f"uid-of-{account}"},
        "spec": {"serviceAccountName": account, "volumes": volumes},
        "status": {"phase": phase},
    }
