"""Schemas of containers, pod templates and services, from the models of the Kubernetes client.

They name every field, because only that bounds the nesting of an object: preserved unknown fields may be
nested so deep that the API server stores the object and cannot list the kind any more.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from redbox_kube.schemas.openapi import Schema, structural

QUANTITY_MAPS = frozenset({"limits", "requests", "overhead", "capacity"})
QUANTITIES = frozenset({"sizeLimit", "divisor"})
PORTS_BY_NAME = frozenset({"httpGet.port", "tcpSocket.port", "ports.targetPort"})
LEFT_OUT = frozenset(
    {
        # Only of running pods.
        "ephemeralContainers",
        # Volumes that Kubernetes no longer has.
        *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "flexVolume", "flocker"),
        *("gcePersistentDisk", "gitRepo", "glusterfs", "photonPersistentDisk", "portworxVolume", "quobyte"),
        *("rbd", "scaleIO", "storageos", "vsphereVolume"),
    }
)
INT_OR_STRING: Schema = {"x-kubernetes-int-or-string": True}
LABELS: Schema = {
    "type": "object",
    "maxProperties": 64,
    "additionalProperties": {"type": "string", "maxLength": 4096},
}
METADATA: Schema = {"type": "object", "properties": {"labels": LABELS, "annotations": LABELS}}
EXTERNAL_ADDRESSES = "externalIPs"
"""A Service with these takes the traffic of other addresses in the cluster (CVE-2020-8554)."""


def container_schema() -> Schema:
    """Every field of a container; the name is the operator's."""
    return _kubernetes("V1Container")


def pod_template_schema() -> Schema:
    """Labels, annotations and a pod's spec. `containers` may be left out."""
    return {"type": "object", "properties": {"metadata": METADATA, "spec": _kubernetes("V1PodSpec")}}


def service_schema() -> Schema:
    """Labels, annotations and a Service's spec, with the port as a shorthand."""
    spec = _kubernetes("V1ServiceSpec")
    fields = {name: field for name, field in spec["properties"].items() if name != EXTERNAL_ADDRESSES}
    port = {"type": "integer", "minimum": 1, "maximum": 65535}
    return {
        "type": "object",
        "properties": {
            "metadata": METADATA,
            "spec": {**spec, "properties": fields},
            "port": port | {"description": "The Service's port."},
            "nodePort": port | {"description": "The port on each Kubernetes node, for type NodePort."},
        },
    }


def claim_template_schema() -> Schema:
    """A PersistentVolumeClaim's labels, annotations and spec, with the name of its volume."""
    metadata = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 63}}}
    metadata["properties"] |= METADATA["properties"]
    return {
        "type": "object",
        "properties": {"metadata": metadata, "spec": _kubernetes("V1PersistentVolumeClaimSpec")},
    }


@cache
def _kubernetes(model: str) -> Schema:
    """Imported late: only the generator of CRDs needs it, and it takes a second and many MiB."""
    models = importlib.import_module("kubernetes.client.models")
    kind: type[BaseModel] = getattr(models, model)
    return _plain(structural(kind, defaults=False), "")


def _plain(node: Schema, name: str, parent: str = "") -> Schema:
    """Without descriptions and required fields, and with quantities as the API server takes them."""
    if name in QUANTITIES or f"{parent}.{name}" in PORTS_BY_NAME:
        return dict(INT_OR_STRING)
    made: Schema = {
        key: value
        for key, value in node.items()
        if key not in {"description", "required", "additionalProperties", "x-kubernetes-map-type"}
    }
    if "properties" in made:
        made["properties"] = {
            key: _plain(field, key, name) for key, field in made["properties"].items() if key not in LEFT_OUT
        }
    if "items" in made:
        made["items"] = _plain(made["items"], name)
    if "additionalProperties" in node:
        values = dict(INT_OR_STRING) if name in QUANTITY_MAPS else _plain(node["additionalProperties"], "")
        made |= {"additionalProperties": values, "maxProperties": 256}
    return made if "type" in made else dict(INT_OR_STRING)


@dataclass(frozen=True, slots=True)
class _Described:
    """The JSON schema of a field whose Python type is any object; made when a CRD is generated."""

    make: str

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        del schema, handler
        made: Schema = globals()[self.make]()
        return made


ContainerFields = Annotated[dict[str, Any], _Described("container_schema")]
PodTemplate = Annotated[dict[str, Any], _Described("pod_template_schema")]
ServiceFields = Annotated[dict[str, Any], _Described("service_schema")]
ClaimTemplate = Annotated[dict[str, Any], _Described("claim_template_schema")]
