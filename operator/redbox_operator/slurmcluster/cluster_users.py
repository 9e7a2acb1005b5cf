"""What the status of a SlurmCluster needs from Kubernetes: who still uses it, and its gateways."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus

from redbox_clusters.node_labels import gateway_key
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_clusters.virtual_pods import submitted_pods, virtual_nodes_of
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, ObjectClient, ResourcePath
from redbox_kube.runtime.clock import now
from redbox_operator.api.slurmcluster_status import ClusterUsers
from redbox_operator.object_cache import ObjectCache

SUBMITS_END_S = 10.0
"""A pod's submit that was under way when the deletion began has shown its job by then."""


async def users_of(
    cluster: SlurmCluster, objects: ObjectClient, cache: ObjectCache, *, limited: bool
) -> ClusterUsers:
    """Of a SlurmCluster that is being deleted.

    Pods with jobs of their own are looked for, too; an operator that is `limited` to namespaces has none
    beside it.
    """
    if not cluster.being_deleted:
        return ClusterUsers()
    jobs = [job.ref.full_name for job in cache.jobs_of(cluster.key) if job.has_companion and not job.finished]
    if cluster.spec.abandon_jobs or limited:
        return ClusterUsers(jobs, [])
    nodes = await virtual_nodes_of(objects, cluster.key)
    return ClusterUsers(jobs, [str(pod) for pod in await submitted_pods(objects, nodes)])


async def gateways_of(cluster: SlurmCluster, objects: ObjectClient) -> list[str] | None:
    """Gateway nodes, where they hold jobs back; None without the right to list nodes."""
    if not cluster.spec.hold_back or not cluster.spec.gateways:
        return []
    labelled = {"labelSelector": f"{gateway_key(cluster.name)}=true"}
    nodes = objects.list_metadata(ResourcePath(kinds.NODE), labelled)
    try:
        return [node.name async for node in nodes]
    except ApiRefused as refusal:
        if refusal.status != HTTPStatus.FORBIDDEN:
            raise
        return None


def may_still_submit(cluster: SlurmCluster) -> bool:
    """Whether its deletion has only just begun: a pod's submit may be under way, and shows no job yet."""
    since, spec = cluster.metadata.get("deletionTimestamp"), cluster.spec
    if since is None or not spec.pods.enabled or spec.abandon_jobs:
        return False
    return (now() - datetime.fromisoformat(since)).total_seconds() < SUBMITS_END_S
