"""Names that a job gives, checked before it is created: a typing error would let it wait without an end.

What the user may not see is not checked; the operator and Slurm refuse what they do not have.
"""

from __future__ import annotations

from typing import Any

from kubectl_slurm.errors import NotPermitted, ObjectNotFound, Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.clusters import ClusterView, all_clusters, no_partition
from kubectl_slurm.terminal.screen import one_line


def check_names(kubectl: Kubectl, spec: dict[str, Any]) -> None:
    """Refusal with the names that there are."""
    if account := spec.get("serviceAccountName"):
        _check_object(kubectl, "serviceaccounts", "service account", account)
    volume = spec.get("results", {}).get("volume", {})
    if claim := volume.get("persistentVolumeClaim", {}).get("claimName"):
        _check_object(kubectl, "persistentvolumeclaims", "claim", claim)
    if not {"cluster", "endpoint", "partition"} & spec.keys():
        return
    try:
        clusters = all_clusters(kubectl)
    except NotPermitted:
        return
    chosen = [cluster for cluster in clusters if _is_chosen(cluster, spec)]
    if not chosen:
        raise Refusal(_no_cluster(clusters, spec))
    if len(chosen) == 1 and chosen[0].partition_names and not chosen[0].trouble:
        wanted = {name for name in spec.get("partition", "").split(",") if name}
        if missing := wanted - {*chosen[0].partition_names}:
            raise Refusal(no_partition(missing, chosen))


def _is_chosen(cluster: ClusterView, spec: dict[str, Any]) -> bool:
    if "endpoint" in spec or "cluster" in spec:
        kind = "endpoint" if cluster.is_endpoint else "cluster"
        return bool(cluster.name == spec.get(kind))
    return True


def _no_cluster(clusters: list[ClusterView], spec: dict[str, Any]) -> str:
    wanted = (
        f"SlurmEndpoint {spec['endpoint']}" if "endpoint" in spec else f"SlurmCluster {spec.get('cluster')}"
    )
    there = ", ".join(cluster.title for cluster in clusters)
    found = f"there is {there}" if there else "no SlurmCluster exists, and no SlurmEndpoint here"
    return one_line(f"there is no {wanted}: {found}")


def _check_object(kubectl: Kubectl, kind: str, what: str, name: str) -> None:
    try:
        kubectl.json("get", kind, "--", name)
    except NotPermitted:
        return
    except ObjectNotFound:
        items = kubectl.json("get", kind)["items"]
        there = ", ".join(item["metadata"]["name"] for item in items)
        found = f"there is {there}" if there else "it has none"
        raise ObjectNotFound(
            one_line(f"there is no {what} {name} in namespace {kubectl.namespace}: {found}")
        ) from None
