"""What resourced has published on Nodes: virtual ones, and keys on real ones. Pure."""

from __future__ import annotations

from redbox_clusters.names import PROVIDER
from redbox_kube.api.objects import Object

PARTITION_KEY = ".redbox.dev/"
NEEDED = {
    "metadata": ("name", "uid", "labels", "annotations"),
    "spec": ("providerID",),
    "status": ("capacity", "allocatable"),
}
"""Thousands of whole Nodes would fill the hook's memory."""


def is_virtual(node: Object) -> bool:
    """By its immutable providerID: our label may stand on any node, and is then of no consequence."""
    return str(node.get("spec", {}).get("providerID", "")).startswith(PROVIDER)


def reduced(node: Object) -> Object:
    return {part: _only(node.get(part), *names) for part, names in NEEDED.items()}


def withdrawn(node: Object) -> tuple[Object, Object]:
    """The patches for a gateway node: published labels, annotations and resources, each as null."""
    metadata, status = node["metadata"], node.get("status", {})
    return _nulls(metadata, "labels", "annotations"), _nulls(status, "capacity", "allocatable")


def _nulls(holder: Object, *names: str) -> Object:
    found = {name: [key for key in holder.get(name) or {} if PARTITION_KEY in key] for name in names}
    return {name: dict.fromkeys(keys) for name, keys in found.items() if keys}


def _only(holder: Object | None, *names: str) -> Object:
    return {name: (holder or {})[name] for name in names if name in (holder or {})}
