"""SlurmCluster or SlurmEndpoint of a SlurmJob, its partition, and placement of its pod. Pure.

A chosen SlurmCluster is kept (`status.cluster`), even if others are created later. Node affinity on the
limits that resourced publishes keeps a pod from nodes where its job does not fit; queueing is Slurm's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from redbox_clusters.names import LABEL_CLUSTER, LABEL_DEFAULT_PARTITION, LABEL_PARTITION, TAINT_SLURM
from redbox_clusters.node_labels import fit_terms, gateway_key, partition_label, prefix
from redbox_clusters.slurm_cluster import Delivery, SlurmCluster
from redbox_clusters.slurm_endpoint import endpoint_key, is_endpoint, is_visible
from redbox_operator.api.slurmcluster_status import holds_back
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.companion_pods.resource_needs import needs_of, whole_needs_of

Object = dict[str, Any]
CHOOSING = frozenset({LABEL_CLUSTER, LABEL_PARTITION})
TOLERATIONS = [
    {"key": TAINT_SLURM, "operator": "Exists", "effect": "NoSchedule"},
    # Without limit: otherwise Kubernetes evicts pods of a node whose resourced is away for 300 s.
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
]


def cluster_of(job: SlurmJob, clusters: Collection[str]) -> str | None:
    """The key of this job's SlurmCluster or SlurmEndpoint, whether it exists; None: it is not determined."""
    chosen = chosen_cluster(job)
    if chosen:
        return chosen
    own = [key for key in clusters if is_visible(key, job.namespace)]
    return own[0] if len(own) == 1 else None


def chosen_cluster(job: SlurmJob) -> str | None:
    """The key of what the SlurmJob names, or was submitted to."""
    status, spec = job.status, job.spec
    endpoint = status.endpoint or (None if status.cluster else spec.endpoint)
    if endpoint:
        return endpoint_key(job.namespace, endpoint)
    named = status.cluster or spec.cluster or spec.node_selector.get(LABEL_CLUSTER)
    # A node selector may have any text, also the key of another namespace's SlurmEndpoint.
    return None if named is None or is_endpoint(named) else named


def partition_of(job: SlurmJob) -> str | None:
    """The partition that the SlurmJob names; None for Slurm's default."""
    return job.spec.partition or job.spec.node_selector.get(LABEL_PARTITION)


def placed(job: SlurmJob, cluster: SlurmCluster) -> Object:
    """The scheduling fields of a companion's pod spec."""
    if cluster.spec.delivery is Delivery.VIRTUAL:
        selector = {LABEL_CLUSTER: cluster.name} | _virtual_node(job)
        return _fields(own_selector(job) | selector, _fit(job, cluster), TOLERATIONS)
    if cluster.spec.gateways:
        return _fields(own_selector(job) | {gateway_key(cluster.name): "true"}, _fit(job, cluster), ())
    return placed_anywhere(job)


def placed_anywhere(job: SlurmJob) -> Object:
    """The same for a pod that needs a kubelet, but no specific node."""
    return _fields(own_selector(job), None, ())


def held_back(job: SlurmJob, cluster: SlurmCluster) -> dict[str, str]:
    """The extended resources that a companion requests where Kubernetes holds jobs back."""
    partition = partition_of(job)
    if partition is None or not holds_back(cluster):
        return {}
    keys = prefix(partition, cluster.name)
    return {f"{keys}/{name}": str(amount) for name, amount in whole_needs_of(job.spec.resources).items()}


def own_selector(job: SlurmJob) -> dict[str, str]:
    """The user's node selector, without the labels that choose cluster and partition."""
    return {key: value for key, value in job.spec.node_selector.items() if key not in CHOOSING}


def _virtual_node(job: SlurmJob) -> dict[str, str]:
    partition = partition_of(job)
    if partition is None:
        return {LABEL_DEFAULT_PARTITION: "true"}
    return {LABEL_PARTITION: partition_label(partition)}


def _fit(job: SlurmJob, cluster: SlurmCluster) -> Object | None:
    partition = partition_of(job)
    terms = fit_terms(needs_of(job.spec.resources), partition, cluster.name) if partition else []
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required} if terms else None


def _fields(selector: dict[str, str], affinity: Object | None, tolerations: Sequence[Object]) -> Object:
    fields = {"nodeSelector": selector, "affinity": affinity, "tolerations": tolerations}
    return {name: value for name, value in fields.items() if value}
