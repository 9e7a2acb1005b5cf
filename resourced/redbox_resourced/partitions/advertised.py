"""What a partition offers, and under which keys a node says so. Pure.

It is what the partition *has*: never what is free, also when it is drained, powered down or empty. A limit
that Slurm does not set has no label. Every key begins with the partition's own prefix, so that any number
of partitions and clusters share a node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from redbox_api.models import Partition, PartitionLimits
from redbox_kube.node_labels import (
    LONGEST_LABEL,
    Limit,
    key_part,
    limit_key,
    partition_label,
    prefix,
)
from redbox_resourced.partitions.overrides import PartitionOverride

AMOUNTS = frozenset({"nodes", "cpus", "mem", "gpus"})
PLAIN_GRES = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*(:[A-Za-z0-9]+([_-][A-Za-z0-9]+)*)?")
LEGACY_GROUP = "wlm.sylabs.io"


@dataclass(frozen=True)
class AdvertisedPartition:
    """One partition as it is published."""

    cluster: str
    partition: str
    is_default: bool = False
    limits: Mapping[Limit, int] = field(default_factory=dict)
    amounts: Mapping[str, int] = field(default_factory=dict)
    """What is counted: nodes, cpus, mem (MB), gpus, each gres, each feature that has a quantity."""
    features: Mapping[str, str] = field(default_factory=dict)
    """With their versions; `true` where there is none."""


def advertised_partition(
    cluster: str, partition: Partition, override: PartitionOverride
) -> AdvertisedPartition:
    """What Slurm says, and what the administrator says instead."""
    total = partition.total
    amounts = {"nodes": total.nodes, "cpus": total.cpus, "mem": total.mem_mb, "gpus": total.gpus}
    amounts |= {_gres_name(name): amount for name, amount in total.gres.items()}
    additional = override.additional_features
    return AdvertisedPartition(
        cluster=cluster,
        partition=partition.name,
        is_default=partition.is_default,
        limits=_limits(partition.limits) | override.limits(),
        amounts=amounts | {_feature_name(one.name): one.quantity for one in additional if one.quantity},
        features=dict.fromkeys(partition.features, "true") | {one.name: one.version for one in additional},
    )


def labels_of(offer: AdvertisedPartition) -> dict[str, str]:
    """Limits as numbers, for Gt and Lt, and features."""
    head = prefix(offer.partition, offer.cluster)
    limits = {
        limit_key(limit, offer.partition, offer.cluster): str(value) for limit, value in offer.limits.items()
    }
    features = {
        f"{head}/{_feature_name(name)}": _label_value(version) for name, version in offer.features.items()
    }
    return {f"{head}/partition": partition_label(offer.partition), **limits, **features}


def resources_of(offer: AdvertisedPartition) -> dict[str, str]:
    """Extended resources."""
    head = prefix(offer.partition, offer.cluster)
    return {f"{head}/{name}": str(amount) for name, amount in offer.amounts.items()}


def annotations_of(offer: AdvertisedPartition) -> dict[str, str]:
    """The true name."""
    return {f"{prefix(offer.partition, offer.cluster)}/partition": offer.partition}


def legacy_labels_of(offer: AdvertisedPartition) -> dict[str, str]:
    """What the Sylabs operator wrote: one partition's only, since its keys do not name it."""
    numbers = {
        "nodes": offer.limits.get(Limit.NODES),
        "wall-time": offer.limits.get(Limit.TIME_S),
        "cpu-per-node": offer.limits.get(Limit.CPUS_PER_NODE),
        "mem-per-node": offer.limits.get(Limit.MEM_MB_PER_NODE),
    }
    labels = {name: str(value) for name, value in numbers.items() if value is not None}
    for name, version in offer.features.items():
        labels.setdefault(key_part(name), _label_value(version))
        if version and version != "true":
            labels.setdefault(key_part(f"{name}_{version}"), "true")
    labels["partition"] = partition_label(offer.partition)
    return {f"{LEGACY_GROUP}/{name}": value for name, value in labels.items()}


def _limits(limits: PartitionLimits) -> dict[Limit, int]:
    numbers = {
        Limit.NODES: limits.max_nodes,
        Limit.CPUS_PER_NODE: limits.max_cpus_per_node,
        Limit.MEM_MB_PER_NODE: limits.max_mem_mb_per_node,
        Limit.GPUS_PER_NODE: limits.max_gpus_per_node,
        Limit.TIME_S: limits.max_time_s,
    }
    return {limit: number for limit, number in numbers.items() if number is not None}


def _gres_name(gres: str) -> str:
    """`gpu:tesla` becomes `gpu.tesla`; what is odd, or one of our own words, stands under `gres.`."""
    plain = PLAIN_GRES.fullmatch(gres) and gres not in AMOUNTS
    return gres.replace(":", ".") if plain else f"gres.{key_part(gres, LONGEST_LABEL - len('gres.'))}"


def _feature_name(feature: str) -> str:
    return f"feature.{key_part(feature, LONGEST_LABEL - len('feature.'))}"


def _label_value(version: str) -> str:
    return key_part(version) if version else "true"
