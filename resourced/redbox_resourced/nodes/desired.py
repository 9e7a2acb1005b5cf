"""Which virtual nodes there should be, and what becomes of those that are there. Pure.

A Node is never deleted because somebody is silent: only when Slurm, heard just now, lists other partitions
and not this one, for some minutes; or when an administrator of Kubernetes no longer wants it. Until then,
and as long as an unfinished pod is bound to it, it is cordoned and served.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redbox_api.models import Partition
from redbox_kube.names import ANNOTATION_PARTITION
from redbox_kube.node_labels import dns_label, virtual_node
from redbox_kube.slurm_cluster import Delivery
from redbox_resourced.nodes.node_view import SeenNode
from redbox_resourced.partitions.advertised import Offer, offer_of
from redbox_resourced.partitions.availability import Standing, standing_of, unwanted, vanished
from redbox_resourced.partitions.overrides import Overrides
from redbox_resourced.partitions.partition_feed import PartitionFeed

LEFT_OUT = "The filter of partitions, or the number of virtual nodes allowed, leaves the partition out of"


@dataclass(frozen=True)
class Wish:
    """What one virtual node should be. None: not known now, so what is said of it stays."""

    node: str
    cluster: str
    partition: str
    unreachable: str = ""
    slurm: str = ""
    offer: Offer | None = None
    standing: Standing | None = None
    delete: bool = False
    """Once no unfinished pod is bound to it."""
    is_sure: bool = True
    """Whether deleting it need not wait: it is an administrator's will."""


def wishes_of(
    followed: PartitionFeed, nodes: Iterable[SeenNode], overrides: Overrides, most: int
) -> tuple[list[Wish], int]:
    """For one SlurmCluster; and how many of its partitions get no node because `most` have one."""
    cluster = followed.cluster.name
    own = [node for node in nodes if node.cluster == dns_label(cluster)]
    if followed.cluster.spec.delivery is not Delivery.VIRTUAL:
        why = f"SlurmCluster {cluster} is not delivered through virtual nodes (delivery: Virtual)."
        return [_unwanted(node, followed, why) for node in own], 0
    if not followed.is_settled:
        return [], 0
    chosen = _chosen(followed.partitions, {node.name for node in own}, cluster, most)
    wishes = [_wish(followed, partition, overrides) for partition in chosen]
    named = {wish.node for wish in wishes}
    wishes += [_leftover(node, followed) for node in own if node.name not in named]
    return wishes, len(followed.partitions) - len(chosen)


def wishes_of_unusable(cluster: str, why: str, nodes: Iterable[SeenNode]) -> list[Wish]:
    """For a SlurmCluster that nobody can follow."""
    own = (node for node in nodes if node.cluster == dns_label(cluster))
    return [Wish(node.name, cluster, _true_name(node), unreachable=why) for node in own]


def wishes_of_others(known: Iterable[str], nodes: Iterable[SeenNode]) -> list[Wish]:
    """For nodes whose SlurmCluster was deleted."""
    labels = {dns_label(cluster) for cluster in known}
    others = (node for node in nodes if node.is_virtual and node.cluster not in labels)
    standing = unwanted("Its SlurmCluster was deleted.")
    return [
        Wish(node.name, node.cluster, _true_name(node), standing=standing, delete=True) for node in others
    ]


def _chosen(
    partitions: Mapping[str, Partition], existing: set[str], cluster: str, most: int
) -> list[Partition]:
    """Those that have a node keep it; then the default one, then by name."""

    def rank(partition: Partition) -> tuple[bool, bool, str]:
        has_node = virtual_node(partition.name, cluster) in existing
        return (not has_node, not partition.is_default, partition.name)

    return sorted(partitions.values(), key=rank)[:most]


def _wish(followed: PartitionFeed, partition: Partition, overrides: Overrides) -> Wish:
    cluster = followed.cluster.name
    return Wish(
        node=virtual_node(partition.name, cluster),
        cluster=cluster,
        partition=partition.name,
        unreachable=followed.unreachable,
        slurm=followed.version,
        offer=offer_of(cluster, partition, overrides.of(cluster, partition.name)),
        standing=standing_of(partition),
    )


def _leftover(node: SeenNode, followed: PartitionFeed) -> Wish:
    """There, and not among those that should be."""
    cluster, partition = followed.cluster.name, _true_name(node)
    if followed.lacks(partition):
        return Wish(node.name, cluster, partition, standing=vanished(partition), delete=True, is_sure=False)
    if partition in followed.all_partitions:
        return _unwanted(node, followed, f"{LEFT_OUT} SlurmCluster {cluster}.")
    return Wish(node.name, cluster, partition, unreachable=followed.unreachable)


def _unwanted(node: SeenNode, followed: PartitionFeed, why: str) -> Wish:
    return Wish(
        node=node.name,
        cluster=followed.cluster.name,
        partition=_true_name(node),
        unreachable=followed.unreachable,
        standing=unwanted(why),
        delete=True,
    )


def _true_name(node: SeenNode) -> str:
    written = node.annotations.get(ANNOTATION_PARTITION, "")
    return written if dns_label(written) == node.partition else node.partition
