"""The parts of a Kubernetes Node that resourced needs. Pure.

Kept are only virtual nodes, gateways, and Nodes in which resourced owns fields: the API server's
managedFields show that also after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redbox_kube.node_labels import gateway_key

Object = dict[str, Any]
MANAGER = "redbox-resourced"
PROVIDER = "redbox://"
"""The scheme of a virtual node's providerID."""
CONDITIONS = ("Ready", "RedBoxReachable", "PartitionUp", "MemoryPressure", "DiskPressure", "PIDPressure")
GATEWAY = gateway_key("x").removesuffix("x")


@dataclass(frozen=True)
class OwnedKeys:
    """Keys that a field manager owns, by map."""

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    capacity: tuple[str, ...] = ()
    allocatable: tuple[str, ...] = ()

    def __or__(self, other: OwnedKeys) -> OwnedKeys:
        """The API server records the Node and its status separately."""
        return OwnedKeys(
            self.labels + other.labels,
            self.annotations + other.annotations,
            self.capacity + other.capacity,
            self.allocatable + other.allocatable,
        )


@dataclass(frozen=True)
class NodeView:
    """One Node."""

    name: str
    uid: str
    version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...]
    conditions: Mapping[str, tuple[str, str]]
    """Status and lastTransitionTime of the conditions that resourced writes."""
    owned: Mapping[str, OwnedKeys]
    """By resourced's field managers."""
    provider_id: str
    is_being_deleted: bool

    @property
    def is_virtual(self) -> bool:
        """By the immutable providerID: any label can be removed, or set by a kubelet on its own Node."""
        return self.provider_id.startswith(PROVIDER)

    @property
    def cluster(self) -> str:
        """A virtual node's SlurmCluster, as a DNS label."""
        return self.provider_id.removeprefix(PROVIDER).partition("/")[0]

    @property
    def partition(self) -> str:
        """A virtual node's partition, as a DNS label."""
        return self.provider_id.removeprefix(PROVIDER).partition("/")[2]

    def is_gateway_of(self, cluster: str) -> bool:
        return not self.is_virtual and self.labels.get(gateway_key(cluster)) == "true"


def managed_node(node: Object) -> NodeView | None:
    """The Node's view; None where resourced has nothing to do with it."""
    view = read_node(node)
    is_gateway = any(key.startswith(GATEWAY) for key in view.labels)
    return view if view.is_virtual or is_gateway or view.owned else None


def read_node(node: Object) -> NodeView:
    metadata, spec, status = node["metadata"], node.get("spec", {}), node.get("status", {})
    return NodeView(
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        labels=metadata.get("labels", {}),
        annotations=metadata.get("annotations", {}),
        taints=tuple(spec.get("taints", [])),
        conditions={
            condition["type"]: (condition["status"], condition.get("lastTransitionTime") or "")
            for condition in status.get("conditions", [])
            if condition["type"] in CONDITIONS
        },
        owned=_owned(metadata.get("managedFields", [])),
        provider_id=spec.get("providerID", ""),
        is_being_deleted="deletionTimestamp" in metadata,
    )


def _owned(managed_fields: list[Object]) -> dict[str, OwnedKeys]:
    owned: dict[str, OwnedKeys] = {}
    for entry in managed_fields:
        manager = entry["manager"]
        if manager.startswith(MANAGER) and entry.get("operation") == "Apply":
            owned[manager] = owned.get(manager, OwnedKeys()) | _keys(entry.get("fieldsV1", {}))
    return owned


def _keys(fields: Object) -> OwnedKeys:
    metadata, status = fields.get("f:metadata", {}), fields.get("f:status", {})
    return OwnedKeys(
        labels=_names(metadata.get("f:labels", {})),
        annotations=_names(metadata.get("f:annotations", {})),
        capacity=_names(status.get("f:capacity", {})),
        allocatable=_names(status.get("f:allocatable", {})),
    )


def _names(fields: Object) -> tuple[str, ...]:
    return tuple(name.removeprefix("f:") for name in fields if name.startswith("f:"))
