"""Gateways: real nodes that an administrator labelled to carry the partitions of a SlurmCluster.

Each SlurmCluster is a field manager of its own, so that two of them on one node stay independent. Keys that
no longer apply (a deleted partition, a removed gateway label, a deleted SlurmCluster) are withdrawn; those of
a SlurmCluster whose red-box cannot be reached stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from redbox_clusters.node_labels import dns_label
from redbox_kube.api.objects import ApiError
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.nodes.node_view import MANAGER, NodeView
from redbox_resourced.nodes.server_side_apply import ApplyConfiguration, NodeApplier, withdrawal
from redbox_resourced.partitions.advertised import (
    AdvertisedPartition,
    advertised_partition,
    annotations_of,
    labels_of,
    legacy_labels_of,
    resources_of,
)
from redbox_resourced.partitions.overrides import Overrides
from redbox_resourced.partitions.partition_feed import PartitionFeed

PREFIX = f"{MANAGER}.gateway."
OLD_KEYS = f"{MANAGER}.old-keys"
AdvertisedByCluster = Mapping[str, tuple[AdvertisedPartition, ...] | None]
"""None: red-box has listed no partition since this process started, or lists none now."""


def field_manager_of(cluster: str) -> str:
    return f"{PREFIX}{dns_label(cluster)}"


def advertised_by_cluster(
    clusters: Mapping[str, PartitionFeed], invalid: Iterable[str], overrides: Overrides
) -> AdvertisedByCluster:
    advertised: dict[str, tuple[AdvertisedPartition, ...] | None] = dict.fromkeys(invalid)
    for name, followed in clusters.items():
        partitions = tuple(
            advertised_partition(name, partition, overrides.of(name, partition.name))
            for partition in followed.partitions.values()
        )
        advertised[name] = partitions if followed.all_partitions else None
    return advertised


def gateway_configurations(
    node: NodeView, advertised: AdvertisedByCluster, *, old_keys: bool
) -> list[ApplyConfiguration]:
    """What all SlurmClusters apply to one real node, and what is withdrawn from it. Pure."""
    served = sorted(cluster for cluster in advertised if node.is_gateway_of(cluster))
    configurations: list[ApplyConfiguration] = []
    for cluster in served:
        if partitions := advertised[cluster]:
            configurations += _configurations(field_manager_of(cluster), partitions)
    first = advertised[served[0]] if served and old_keys else ()
    if first:
        # Old keys do not name the partition, so there can be one: the default, else the first by name.
        partition = min(first, key=lambda partition: (not partition.is_default, partition.partition))
        body = {"metadata": {"labels": legacy_labels_of(partition)}}
        configurations.append(ApplyConfiguration(OLD_KEYS, body))
    kept = {
        *(configuration.manager for configuration in configurations),
        *(field_manager_of(cluster) for cluster in served if advertised[cluster] is None),
        *([OLD_KEYS] if first is None else []),
    }
    owners = {manager for manager in node.owned if manager.startswith((PREFIX, OLD_KEYS))}
    for manager in sorted(owners - kept):
        configurations += withdrawal(node, manager)
    return configurations


@dataclass
class GatewayNodes:
    """Keeps the labels and resources of gateways."""

    applier: NodeApplier
    old_keys: bool
    warnings: GroupedWarnings = field(default_factory=lambda: GroupedWarnings("gateway not updated"))

    async def reconcile(self, nodes: Collection[NodeView], advertised: AdvertisedByCluster) -> None:
        """Update all gateways; failures are retried at the next reconciliation."""
        for deleted in self.warnings.failing.keys() - {node.name for node in nodes}:
            self.warnings.recovered(deleted)
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(self._update(node, advertised))

    async def _update(self, node: NodeView, advertised: AdvertisedByCluster) -> None:
        configurations = gateway_configurations(node, advertised, old_keys=self.old_keys)
        try:
            await self.applier.apply(node, configurations)
        except ApiError as error:
            self.warnings.failed(node.name, error)
        else:
            self.warnings.recovered(node.name)


def _configurations(manager: str, partitions: Collection[AdvertisedPartition]) -> list[ApplyConfiguration]:
    labels, annotations, resources = (
        {key: value for partition in partitions for key, value in of(partition).items()}
        for of in (labels_of, annotations_of, resources_of)
    )
    # The kubelet would compute `allocatable` itself, some seconds later; applied here, the field is ours.
    return [
        ApplyConfiguration(manager, {"metadata": {"labels": labels, "annotations": annotations}}),
        ApplyConfiguration(manager, {"status": {"capacity": resources, "allocatable": resources}}, "status"),
    ]
