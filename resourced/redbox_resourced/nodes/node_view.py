"""A Node of Kubernetes, as much of it as is needed to keep what we say of it. Pure.

Of all nodes only those are kept that are ours, that an administrator made a gateway, or on which we said
something before: the API server's record of who owns which field tells that, also after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redbox_kube.node_labels import gateway_key

Object = dict[str, Any]
MANAGER = "redbox-resourced"
PROVIDER = "redbox://"
"""Before the place of a virtual node, which is its providerID."""
CONDITIONS = ("Ready", "RedBoxReachable", "PartitionUp", "MemoryPressure", "DiskPressure", "PIDPressure")
GATEWAY = gateway_key("x").removesuffix("x")


@dataclass(frozen=True)
class OwnedKeys:
    """Keys that a field manager owns, by the maps that they are in."""

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    capacity: tuple[str, ...] = ()
    allocatable: tuple[str, ...] = ()

    def __or__(self, other: OwnedKeys) -> OwnedKeys:
        """Of the node itself, and of its status: the API server writes them down apart."""
        return OwnedKeys(
            self.labels + other.labels,
            self.annotations + other.annotations,
            self.capacity + other.capacity,
            self.allocatable + other.allocatable,
        )


@dataclass(frozen=True)
class NodeView:
    """One node."""

    name: str
    uid: str
    version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...]
    conditions: Mapping[str, tuple[str, str]]
    """Of each of ours its status, and since when."""
    owned: Mapping[str, OwnedKeys]
    """By field managers of ours."""
    provider_id: str
    is_being_deleted: bool

    @property
    def is_virtual(self) -> bool:
        """By what nobody can change: a hand takes labels away, and a kubelet sets any on its own node."""
        return self.provider_id.startswith(PROVIDER)

    @property
    def cluster(self) -> str:
        """Of a virtual node, as one label of a DNS name."""
        return self.provider_id.removeprefix(PROVIDER).partition("/")[0]

    @property
    def partition(self) -> str:
        """Of a virtual node, as one label of a DNS name."""
        return self.provider_id.removeprefix(PROVIDER).partition("/")[2]

    def is_gateway_of(self, cluster: str) -> bool:
        return not self.is_virtual and self.labels.get(gateway_key(cluster)) == "true"


def managed_node(node: Object) -> NodeView | None:
    """What is kept of a Node; None: nothing of it is ours."""
    seen = read_node(node)
    is_gateway = any(key.startswith(GATEWAY) for key in seen.labels)
    return seen if seen.is_virtual or is_gateway or seen.owned else None


def read_node(node: Object) -> NodeView:
    """As the API server shows it."""
    metadata, spec, status = node["metadata"], node.get("spec", {}), node.get("status", {})
    return NodeView(
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
        owned=_owned(metadata.get("managedFields", [])),
        provider_id=spec.get("providerID", ""),
        is_being_deleted="deletionTimestamp" in metadata,
    )


def _owned(managed: list[Object]) -> dict[str, OwnedKeys]:
    owned: dict[str, OwnedKeys] = {}
    for one in managed:
        manager = one["manager"]
        if manager.startswith(MANAGER) and one.get("operation") == "Apply":
            owned[manager] = owned.get(manager, OwnedKeys()) | _keys(one.get("fieldsV1", {}))
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
