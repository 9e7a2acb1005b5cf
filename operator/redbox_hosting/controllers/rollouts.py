"""How far Kubernetes is with the pods of a Deployment or a StatefulSet. Pure."""

from __future__ import annotations

from redbox_kube.api.objects import Object


def is_rolled_out(body: Object | None) -> bool:
    """Whether all its pods are of its newest template, and ready."""
    if body is None or "deletionTimestamp" in body["metadata"]:
        return False
    status, metadata = body.get("status") or {}, body["metadata"]
    wanted = (body.get("spec") or {}).get("replicas", 1)
    is_seen = status.get("observedGeneration") == metadata.get("generation")
    return is_seen and all(status.get(key, 0) == wanted for key in ("updatedReplicas", "readyReplicas"))
