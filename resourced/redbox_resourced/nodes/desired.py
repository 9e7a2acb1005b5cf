"""The virtual nodes that should exist, and what happens to the others. Pure.

A Node is never deleted because an answer is missing: only when Slurm, in a fresh answer, lists other
partitions and not this one, for some minutes; or when the configuration in Kubernetes no longer selects it.
Until then, and as long as an unfinished pod is bound to it, it is cordoned and served.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redbox_api.models import Partition
from redbox_clusters.names import ANNOTATION_PARTITION
from redbox_clusters.node_labels import dns_label, virtual_node
from redbox_resourced.nodes.node_view import NodeView
from redbox_resourced.partitions.advertised import AdvertisedPartition, advertised_partition
from redbox_resourced.partitions.availability import (
    PartitionAvailability,
    availability_of,
    deleted_in_slurm,
    not_selected,
)
from redbox_resourced.partitions.overrides import Overrides
from redbox_resourced.partitions.partition_feed import PartitionFeed

EXCLUDED = "The filter of partitions, or the number of virtual nodes allowed, leaves the partition out of"


@dataclass(frozen=True)
class DesiredNode:
    """One virtual node. A field that is None is unknown now: the Node keeps what it has."""

    node: str
    cluster: str
    partition: str
    unreachable: str = ""
    slurm_version: str = ""
    advertised: AdvertisedPartition | None = None
    has_room: bool = False
    """Kubernetes schedules any number of pods there, and Slurm queues their jobs."""
    availability: PartitionAvailability | None = None
    delete: bool = False
    """As soon as no unfinished pod is bound to it."""
    after_grace: bool = False
    """Delete it only after Slurm has not listed the partition for some minutes."""


def desired_nodes(
    followed: PartitionFeed, nodes: Iterable[NodeView], overrides: Overrides, limit: int
) -> tuple[list[DesiredNode], int]:
    """The nodes of one SlurmCluster, and how many of its partitions get none because of the limit."""
    cluster = followed.cluster.name
    existing = [node for node in nodes if node.cluster == dns_label(cluster)]
    spec = followed.cluster.spec
    if not spec.has_virtual_nodes:
        why = f"SlurmCluster {cluster} has no virtual nodes (delivery: Virtual, or pods.enabled)."
        return [_not_selected(node, followed, why) for node in existing], 0
    if not followed.is_settled:
        return [], 0
    selected = _selected(followed.partitions, {node.name for node in existing}, cluster, limit)
    desired = [
        DesiredNode(
            node=virtual_node(partition.name, cluster),
            cluster=cluster,
            partition=partition.name,
            unreachable=followed.unreachable,
            slurm_version=followed.version,
            advertised=advertised_partition(cluster, partition, overrides.of(cluster, partition.name)),
            has_room=spec.pods.enabled and not spec.hold_back,
            availability=availability_of(partition),
        )
        for partition in selected
    ]
    names = {node.node for node in desired}
    desired += [_leftover(node, followed) for node in existing if node.name not in names]
    return desired, len(followed.partitions) - len(selected)


def desired_nodes_of_invalid(cluster: str, why: str, nodes: Iterable[NodeView]) -> list[DesiredNode]:
    """For a SlurmCluster whose spec cannot be used."""
    return [
        DesiredNode(node.name, cluster, _partition_name(node), unreachable=why)
        for node in nodes
        if node.cluster == dns_label(cluster)
    ]


def desired_nodes_of_deleted(existing: Iterable[str], nodes: Iterable[NodeView]) -> list[DesiredNode]:
    """For nodes whose SlurmCluster is not among the existing ones."""
    labels = {dns_label(cluster) for cluster in existing}
    why = not_selected("Its SlurmCluster was deleted.")
    return [
        DesiredNode(node.name, node.cluster, _partition_name(node), availability=why, delete=True)
        for node in nodes
        if node.is_virtual and node.cluster not in labels
    ]


def _selected(
    partitions: Mapping[str, Partition], existing: set[str], cluster: str, limit: int
) -> list[Partition]:
    """Partitions that have a node keep it; then the default partition, then by name."""

    def rank(partition: Partition) -> tuple[bool, bool, str]:
        has_node = virtual_node(partition.name, cluster) in existing
        return (not has_node, not partition.is_default, partition.name)

    return sorted(partitions.values(), key=rank)[:limit]


def _leftover(node: NodeView, followed: PartitionFeed) -> DesiredNode:
    """A Node that exists, of a partition that is not selected."""
    cluster, partition = followed.cluster.name, _partition_name(node)
    if followed.lacks(partition):
        deleted = deleted_in_slurm(partition)
        return DesiredNode(node.name, cluster, partition, availability=deleted, delete=True, after_grace=True)
    if partition in followed.all_partitions:
        return _not_selected(node, followed, f"{EXCLUDED} SlurmCluster {cluster}.")
    return DesiredNode(node.name, cluster, partition, unreachable=followed.unreachable)


def _not_selected(node: NodeView, followed: PartitionFeed, why: str) -> DesiredNode:
    return DesiredNode(
        node=node.name,
        cluster=followed.cluster.name,
        partition=_partition_name(node),
        unreachable=followed.unreachable,
        availability=not_selected(why),
        delete=True,
    )


def _partition_name(node: NodeView) -> str:
    """The partition's name in Slurm, from the annotation if that fits the immutable providerID."""
    annotated = node.annotations.get(ANNOTATION_PARTITION, "")
    return annotated if dns_label(annotated) == node.partition else node.partition
