"""A PersistentVolume of ours, as it is written and as it is read. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from redbox_api.models import VolumeFolder
from redbox_clusters.names import FINALIZER_VOLUME, LABEL_CLUSTER
from redbox_clusters.node_labels import partition_label
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from redbox_resourced.volumes.claims import ClaimView, StorageClassView
from redbox_resourced.volumes.names import (
    ATTRIBUTE_ACCOUNT,
    ATTRIBUTE_CLUSTER,
    ATTRIBUTE_PATH,
    DRIVER,
    PROVISIONED_BY,
    PROVISIONER,
)


def new_volume(
    claim: ClaimView, storage_class: StorageClassView, cluster: str, folder: VolumeFolder
) -> Object:
    """The volume of a claim: bound to it by uid, and to the nodes of its cluster."""
    here = {"key": LABEL_CLUSTER, "operator": "In", "values": [partition_label(cluster)]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": claim.volume_name,
            "annotations": {PROVISIONED_BY: PROVISIONER},
            "finalizers": [FINALIZER_VOLUME],
        },
        "spec": {
            "capacity": {"storage": claim.storage},
            "accessModes": list(claim.access_modes),
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": storage_class.reclaim_policy,
            "storageClassName": storage_class.name,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace,
                "name": claim.name,
                "uid": claim.uid,
                "resourceVersion": claim.version,
            },
            "csi": {
                "driver": DRIVER,
                "volumeHandle": claim.uid,
                "volumeAttributes": {
                    ATTRIBUTE_CLUSTER: cluster,
                    ATTRIBUTE_PATH: folder.path,
                    ATTRIBUTE_ACCOUNT: claim.account,
                },
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


@dataclass(frozen=True)
class VolumeView:
    """A volume of ours."""

    name: str
    uid: str
    handle: str
    cluster: str
    folder: str
    namespace: str
    """Of its claim."""
    account: str
    """The service account whose Unix user the folder belongs to."""
    claim_uid: str
    phase: str
    reclaim_policy: str
    is_being_deleted: bool
    has_finalizer: bool

    @property
    def path(self) -> ResourcePath:
        return ResourcePath(kinds.PERSISTENT_VOLUME, self.name)

    @property
    def is_unused(self) -> bool:
        """Its claim is gone; or an administrator deletes it, and no claim holds it."""
        return self.phase == "Released" or (self.is_being_deleted and self.phase != "Bound")

    @property
    def deletes_folder(self) -> bool:
        is_deleted_already = self.is_being_deleted and not self.has_finalizer
        return self.is_unused and self.reclaim_policy == "Delete" and not is_deleted_already

    @property
    def keeps_folder(self) -> bool:
        """An administrator deletes the volume, and its folder stays."""
        return self.is_being_deleted and self.is_unused and self.reclaim_policy != "Delete"


def read_volume(body: Object) -> VolumeView | None:
    """The volume; None unless our provisioner made it."""
    metadata, spec = body["metadata"], body["spec"]
    csi = spec.get("csi") or {}
    if csi.get("driver") != DRIVER or (metadata.get("annotations") or {}).get(PROVISIONED_BY) != PROVISIONER:
        return None
    attributes = csi.get("volumeAttributes") or {}
    claim = spec.get("claimRef") or {}
    return VolumeView(
        name=metadata["name"],
        uid=metadata["uid"],
        handle=csi["volumeHandle"],
        cluster=attributes.get(ATTRIBUTE_CLUSTER, ""),
        folder=attributes.get(ATTRIBUTE_PATH, ""),
        namespace=claim.get("namespace", ""),
        account=attributes.get(ATTRIBUTE_ACCOUNT, ""),
        claim_uid=claim.get("uid", ""),
        phase=(body.get("status") or {}).get("phase", "Pending"),
        reclaim_policy=spec.get("persistentVolumeReclaimPolicy", "Retain"),
        is_being_deleted="deletionTimestamp" in metadata,
        has_finalizer=FINALIZER_VOLUME in (metadata.get("finalizers") or ()),
    )
