"""What slurmctld's pod says: its configuration, and its address. Pure."""

from __future__ import annotations

from redbox_hosting.api import names
from redbox_kube.api.objects import Object


def config_hash_of(pod: Object) -> str:
    """The configuration that the kubelet was asked to project."""
    return str((pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_CONFIG_HASH, ""))


def address_of(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")
