"""The ConfigMap with a SlurmEndpoint's audience, for its red-box.

A pod that mounts it starts as soon as it is there, and needs no right at the API server to read it. The
audience in it is for that red-box's settings alone: tokens are requested for what is computed, never for what
a ConfigMap says.
"""

from __future__ import annotations

from redbox_clusters.names import API_VERSION
from redbox_clusters.slurm_endpoint import AUDIENCE_FILE, SlurmEndpoint
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.status.status_writer import StatusWriter


async def publish_audience(writer: StatusWriter, endpoint: SlurmEndpoint) -> str | None:
    """Create the ConfigMap, or correct it; returns why that is impossible."""
    where = ResourcePath(kinds.CONFIG_MAP, endpoint.config_map, endpoint.namespace)
    wanted = audience_config_map(endpoint)
    existing = await writer.objects.get(where)
    if existing is not None:
        owners = existing["metadata"].get("ownerReferences", [])
        if not any(_is_of_this_name(owner, endpoint) for owner in owners):
            return (
                f"ConfigMap {where.name} exists and does not belong to it: delete that, "
                "or give the SlurmEndpoint another name"
            )
        if existing.get("data") == wanted["data"] and owners == wanted["metadata"]["ownerReferences"]:
            return None
        await writer.objects.delete(where, uid=existing["metadata"]["uid"])
        writer.count("ConfigMap", "delete")
    if await writer.objects.create(where.all(), wanted) is not None:
        writer.count("ConfigMap", "create")
    return None


def audience_config_map(endpoint: SlurmEndpoint) -> Object:
    owner = {
        "apiVersion": API_VERSION,
        "kind": endpoint.kind,
        "name": endpoint.name,
        "uid": endpoint.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": endpoint.config_map,
            "namespace": endpoint.namespace,
            "ownerReferences": [owner],
        },
        "immutable": True,
        "data": {AUDIENCE_FILE: endpoint.spec.audience},
    }


def _is_of_this_name(owner: Object, endpoint: SlurmEndpoint) -> bool:
    """Whether it belongs to this SlurmEndpoint, or to a deleted one of its name."""
    return owner.get("kind") == endpoint.kind and owner.get("name") == endpoint.name
