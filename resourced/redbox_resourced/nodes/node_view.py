"""The parts of a Kubernetes Node that resourced needs. Pure.

Kept are only virtual nodes, gateways, and Nodes in which resourced owns fields: the API server's
managedFields show that also after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redbox_clusters.names import PROVIDER
from redbox_clusters.node_labels import gateway_key
from redbox_kube.api.objects import Object

MANAGER = "redbox-resourced"
CONDITIONS = ("Ready", "RedBoxReachable", "PartitionUp", "MemoryPressure", "DiskPressure", "PIDPressure")
GATEWAY = gateway_key("x").removesuffix("x")
KEYED_MAPS = {"metadata": ("labels", "annotations"), "status": ("capacity", "allocatable")}
"""The maps of a Node in which resourced owns keys."""
OwnedKeys = dict[str, set[str]]
"""By the map's name."""


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
    """The API server has separate entries for a Node and its status."""
    owned: dict[str, OwnedKeys] = {}
    for entry in managed_fields:
        # A client that sends no User-Agent has no name.
        manager, fields = entry.get("manager", ""), entry.get("fieldsV1", {})
        if not manager.startswith(MANAGER) or entry.get("operation") != "Apply":
            continue
        keys = owned.setdefault(manager, {name: set() for names in KEYED_MAPS.values() for name in names})
        for parent, names in KEYED_MAPS.items():
            for name in names:
                of_map = fields.get(f"f:{parent}", {}).get(f"f:{name}", {})
                keys[name] |= {key.removeprefix("f:") for key in of_map if key.startswith("f:")}
    return owned
