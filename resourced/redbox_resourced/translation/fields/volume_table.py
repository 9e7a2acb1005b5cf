"""Fields of volumes."""

from __future__ import annotations

from redbox_resourced.translation.fields.container_table import FIELD_REF, RESOURCE_FIELD_REF
from redbox_resourced.translation.fields.rules import FieldTable, honoured, meaningless, only, refused

NO_MOUNTS = (
    "a user's job mounts nothing itself: use a claim on a volume that the Slurm nodes mount, or a hostPath"
)
NO_OWNER = "all files are of the Unix user that the service account is mapped to: leave it out"
ITEM: FieldTable = {
    "key": honoured(),
    "mode": honoured(),
    "path": honoured(),
    "user": refused(NO_OWNER),
}
ITEMS = honoured("", ITEM)
FIELD_ITEM: FieldTable = {
    "fieldRef": honoured("Of metadata alone.", FIELD_REF),
    "mode": honoured(),
    "path": honoured(),
    "resourceFieldRef": honoured("", RESOURCE_FIELD_REF),
    "user": refused(NO_OWNER),
}
MODE = honoured("Files are the user's own.")
CONFIG_MAP: FieldTable = {
    "defaultMode": MODE,
    "defaultUser": refused(NO_OWNER),
    "items": ITEMS,
    "name": honoured("Changes reach the files of a running pod."),
    "optional": honoured(),
}
SECRET: FieldTable = {
    "defaultMode": MODE,
    "defaultUser": refused(NO_OWNER),
    "items": ITEMS,
    "optional": honoured(),
    "secretName": honoured("As it is when the job is submitted: later changes do not reach the job."),
}
DOWNWARD_API: FieldTable = {
    "defaultMode": MODE,
    "defaultUser": refused(NO_OWNER),
    "items": honoured("", FIELD_ITEM),
}
TOKEN: FieldTable = {
    "audience": honoured("By default the API server's own."),
    "expirationSeconds": meaningless(
        "The file is never renewed: the token is issued once, for activeDeadlineSeconds and a day, at most "
        "(and without a deadline) for seven days, and is void when the pod is deleted."
    ),
    "path": honoured(),
    "user": refused(NO_OWNER),
}
SOURCE: FieldTable = {
    "clusterTrustBundle": refused("trust bundles are not in this version: use a ConfigMap"),
    "configMap": honoured("", {"items": ITEMS, "name": honoured(), "optional": honoured()}),
    "downwardAPI": honoured("", {"items": honoured("", FIELD_ITEM)}),
    "podCertificate": refused("certificates of pods are not in this version: use a Secret"),
    "secret": honoured("", {"items": ITEMS, "name": honoured(), "optional": honoured()}),
    "serviceAccountToken": honoured(
        "Where `pods.apiTokens` of the SlurmCluster and the chart's `apiTokenNamespaces` allow it. Else the "
        "volume that each pod gets by default has no token, and any other is refused or waits.",
        TOKEN,
    ),
}
PROJECTED: FieldTable = {
    "defaultMode": MODE,
    "defaultUser": refused(NO_OWNER),
    "sources": honoured("", SOURCE),
}
EMPTY_DIR: FieldTable = {
    "medium": only("use no medium, the node's local disk, or Memory", "Memory"),
    "mode": refused("the folder is open to all containers of the pod: leave it out"),
    "sizeLimit": honoured(),
}
HOST_PATH: FieldTable = {
    "path": honoured("A path of the Slurm node, with the user's rights."),
    "type": honoured(),
}
CLAIM: FieldTable = {
    "claimName": honoured("Of a volume of Red Box, or one that `spec.pods.mounts` of the SlurmCluster maps."),
    "readOnly": honoured(),
}
VOLUME: FieldTable = {
    "configMap": honoured("", CONFIG_MAP),
    "downwardAPI": honoured("", DOWNWARD_API),
    "emptyDir": honoured("Removed when the job ends.", EMPTY_DIR),
    "ephemeral": refused("claims of one pod's own are not in this version: use emptyDir or a claim"),
    "hostPath": honoured("", HOST_PATH),
    "image": refused("images as volumes are not in this version: copy the files in an init container"),
    "name": honoured(),
    "persistentVolumeClaim": honoured("", CLAIM),
    "projected": honoured("", PROJECTED),
    "secret": honoured("In memory where the node has room there.", SECRET),
    **{
        name: refused(NO_MOUNTS)
        for name in (
            *(
                "awsElasticBlockStore",
                "azureDisk",
                "azureFile",
                "cephfs",
                "cinder",
                "csi",
                "fc",
                "flexVolume",
            ),
            *("flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "iscsi", "nfs", "photonPersistentDisk"),
            *("portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume"),
        )
    },
}
