"""What clusters offer, on the real nodes that an administrator made their gateways.

Each cluster is a field manager of its own, so that two clusters on one node know nothing of each other. What
is no longer said (a partition that went, a label that was taken away, a SlurmCluster that was deleted) is
withdrawn; what was said by a cluster that cannot be asked now stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from redbox_kube.api.objects import ApiError
from redbox_kube.node_labels import dns_label
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.nodes.node_view import MANAGER, SeenNode
from redbox_resourced.nodes.server_side_apply import Claim, NodeClaims, withdrawal
from redbox_resourced.partitions.advertised import (
    Offer,
    annotations_of,
    labels_of,
    offer_of,
    old_labels_of,
    resources_of,
)
from redbox_resourced.partitions.overrides import Overrides
from redbox_resourced.partitions.partition_feed import PartitionFeed

PREFIX = f"{MANAGER}.gateway."
OLD_KEYS = f"{MANAGER}.old-keys"
Offers = Mapping[str, tuple[Offer, ...] | None]
"""By cluster; None: red-box has named no partition since this process began, or names none any more."""


def manager_of(cluster: str) -> str:
    """The field manager that speaks for it."""
    return f"{PREFIX}{dns_label(cluster)}"


def offers_now(
    clusters: Mapping[str, PartitionFeed], unusable: Iterable[str], overrides: Overrides
) -> Offers:
    """What each cluster offers now."""
    offers: dict[str, tuple[Offer, ...] | None] = dict.fromkeys(unusable)
    for name, followed in clusters.items():
        told = tuple(
            offer_of(name, partition, overrides.of(name, partition.name))
            for partition in followed.partitions.values()
        )
        offers[name] = told if followed.all_partitions else None
    return offers


def claims_of_gateway(node: SeenNode, offers: Offers, *, old_keys: bool) -> list[Claim]:
    """What all clusters have to say of one real node. Pure."""
    said: list[Claim] = []
    for cluster, offered in offers.items():
        if offered and node.is_gateway_of(cluster):
            said += _claims(manager_of(cluster), offered)
    gateway_of = sorted(cluster for cluster in offers if node.is_gateway_of(cluster))
    first = offers[gateway_of[0]] if gateway_of and old_keys else ()
    if first:
        said.append(Claim(OLD_KEYS, {"metadata": {"labels": old_labels_of(_foremost(first))}}))
    silent = {manager_of(cluster) for cluster, offered in offers.items() if offered is None}
    kept = {
        *(claim.manager for claim in said),
        *(silent & {manager_of(cluster) for cluster in gateway_of}),
        *([OLD_KEYS] if first is None else []),
    }
    speaking = {manager for manager in node.owned if manager.startswith((PREFIX, OLD_KEYS))}
    return said + [claim for manager in sorted(speaking - kept) for claim in withdrawal(node, manager)]


@dataclass
class Gateways:
    """Keeps the gateways' labels and resources."""

    claims: NodeClaims
    old_keys: bool
    problems: dict[str, str] = field(default_factory=dict)
    _troubles: GroupedWarnings = field(
        default_factory=lambda: GroupedWarnings("gateways not as they should be")
    )

    async def settle(self, nodes: Collection[SeenNode], offers: Offers) -> None:
        """One look at all of them; what fails is tried again at the next."""
        for gone in self.problems.keys() - {node.name for node in nodes}:
            self._is_well(gone)
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(self._keep(node, offers))

    async def _keep(self, node: SeenNode, offers: Offers) -> None:
        try:
            await self.claims.keep(node, claims_of_gateway(node, offers, old_keys=self.old_keys))
        except ApiError as error:
            self.problems[node.name] = str(error)
            self._troubles.failed(node.name, str(error))
        else:
            self._is_well(node.name)

    def _is_well(self, node: str) -> None:
        self.problems.pop(node, None)
        self._troubles.mended(node)


def _claims(manager: str, offers: Iterable[Offer]) -> list[Claim]:
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    resources: dict[str, str] = {}
    for offer in offers:
        labels |= labels_of(offer)
        annotations |= annotations_of(offer)
        resources |= resources_of(offer)
    # The kubelet would work out what is allocatable itself, some seconds later; said here, it is ours.
    return [
        Claim(manager, {"metadata": {"labels": labels, "annotations": annotations}}),
        Claim(manager, {"status": {"capacity": resources, "allocatable": resources}}, "status"),
    ]


def _foremost(offers: Iterable[Offer]) -> Offer:
    """The one partition that keys without a partition's name can speak of."""
    return min(offers, key=lambda offer: (not offer.is_default, offer.partition))
