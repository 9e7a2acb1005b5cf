"""A Node of Kubernetes, as much of it as is needed to keep what we say of it. Pure.

Of all nodes only those are kept that are ours, that an administrator made a gateway, or on which we said
something before: the API server's record of who owns which field tells that, also after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redbox_kube.names import LABEL_CLUSTER, LABEL_VIRTUAL
from redbox_kube.node_labels import gateway_key

Object = dict[str, Any]
MANAGER = "redbox-resourced"
CONDITIONS = ("Ready", "RedBoxReachable", "PartitionUp", "MemoryPressure", "DiskPressure", "PIDPressure")
GATEWAY = gateway_key("x").removesuffix("x")


@dataclass(frozen=True)
class SeenNode:
    """One node."""

    name: str
    uid: str
    version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...]
    conditions: Mapping[str, tuple[str, str]]
    """Of each of ours its status, and since when."""
    managers: frozenset[str]
    """Ours that own something here."""
    provider_id: str
    is_being_deleted: bool

    @property
    def is_virtual(self) -> bool:
        return self.labels.get(LABEL_VIRTUAL) == "true"

    @property
    def cluster(self) -> str:
        """Of a virtual node."""
        return self.labels.get(LABEL_CLUSTER, "")

    def is_gateway_of(self, cluster: str) -> bool:
        return not self.is_virtual and self.labels.get(gateway_key(cluster)) == "true"


def kept(node: Object) -> SeenNode | None:
    """What is kept of a Node; None: nothing of it is ours."""
    seen = read_node(node)
    is_gateway = any(key.startswith(GATEWAY) for key in seen.labels)
    return seen if seen.is_virtual or is_gateway or seen.managers else None


def read_node(node: Object) -> SeenNode:
    """As the API server shows it."""
    metadata, spec, status = node["metadata"], node.get("spec", {}), node.get("status", {})
    return SeenNode(
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        labels=metadata.get("labels", {}),
        annotations=metadata.get("annotations", {}),
        taints=tuple(spec.get("taints", [])),
        conditions={
            one["type"]: (one["status"], one.get("lastTransitionTime") or "")
            for one in status.get("conditions", [])
            if one["type"] in CONDITIONS
        },
        managers=frozenset(
            one["manager"]
            for one in metadata.get("managedFields", [])
            if one["manager"].startswith(MANAGER) and one.get("operation") == "Apply"
        ),
        provider_id=spec.get("providerID", ""),
        is_being_deleted="deletionTimestamp" in metadata,
    )
