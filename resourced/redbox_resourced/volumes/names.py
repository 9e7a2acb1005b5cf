"""Names of the provisioner's protocol on claims, classes and volumes: Kubernetes' and ours."""

from __future__ import annotations

from redbox_clusters.names import GROUP

PROVISIONER = f"{GROUP}/directory"
"""Of a StorageClass, and in the annotation of each volume that was made for one."""
DRIVER = f"directory.{GROUP}"
"""Of the volumes' CSI source and of the CSIDriver object: a driver's name has no slash."""

ANNOTATION_ACCOUNT = f"{GROUP}/service-account"
"""On a claim: the service account whose Unix user the folder belongs to."""
ANNOTATION_PATH = f"{GROUP}/path"
"""On a volume of another driver: where Slurm's nodes have it. Only cluster administrators write volumes."""
DEFAULT_ACCOUNT = "default"

PARAMETER_CLUSTER = "cluster"
PARAMETER_GROUP_SHARED = "groupShared"

ATTRIBUTE_CLUSTER, ATTRIBUTE_PATH, ATTRIBUTE_ACCOUNT = "cluster", "path", "serviceAccount"

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
STORAGE_PROVISIONER = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
"""Written by Kubernetes on a claim that an external provisioner shall serve."""
