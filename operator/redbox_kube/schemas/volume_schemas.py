"""Complete schemas of the volumes that Kubernetes' own controllers read.

They name every field, because only that bounds the nesting of an object. Preserved unknown fields may be
nested ten thousand levels; their managedFields are then some levels deeper, and the API server (1.34) cannot
read the stored object any more: the whole kind cannot be listed.
"""

from __future__ import annotations

from redbox_kube.schemas.openapi import Schema, at_most_one


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _text(longest: int = 253) -> Schema:
    return {"type": "string", "maxLength": longest}


def _list(items: Schema, most: int = 16) -> Schema:
    return {"type": "array", "maxItems": most, "items": items}


def _map(values: Schema, most: int = 64) -> Schema:
    return {"type": "object", "maxProperties": most, "additionalProperties": values}


FLAG: Schema = {"type": "boolean"}
LABELS = _map(_text(63))
QUANTITIES = _map({"x-kubernetes-int-or-string": True}, 16)
SOURCE: dict[str, Schema] = {"apiGroup": _text(), "kind": _text(63), "name": _text()}
CLAIM_TEMPLATE = _object(
    metadata=_object(labels=LABELS, annotations=_map(_text(1024))),
    spec=_object(
        accessModes=_list(_text(63)),
        dataSource=_object(**SOURCE),
        dataSourceRef=_object(**SOURCE, namespace=_text(63)),
        resources=_object(limits=QUANTITIES, requests=QUANTITIES),
        selector=_object(
            matchLabels=LABELS,
            matchExpressions=_list(_object(key=_text(317), operator=_text(63), values=_list(_text(63), 64))),
        ),
        storageClassName=_text(),
        volumeAttributesClassName=_text(),
        volumeMode=_text(63),
        volumeName=_text(),
    ),
)
REFUSED = (  # by their names
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "csi"),
    *("downwardAPI", "emptyDir", "fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo"),
    *("glusterfs", "image", "iscsi", "photonPersistentDisk", "portworxVolume", "projected", "quobyte"),
    *("rbd", "scaleIO", "secret", "storageos", "vsphereVolume"),
)
MOUNT = _object(
    name=_text(),
    persistentVolumeClaim=_object(claimName=_text(), readOnly=FLAG),
    nfs=_object(server=_text(), path=_text(4096), readOnly=FLAG),
    hostPath=_object(path=_text(4096), type=_text(63)),
    ephemeral=_object(volumeClaimTemplate=CLAIM_TEMPLATE),
    **{kind: _object() for kind in REFUSED},
)
MOUNT["x-kubernetes-validations"] = [at_most_one(*sorted(MOUNT["properties"].keys() - {"name"}))]
