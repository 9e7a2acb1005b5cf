"""What a node advertises of a partition: labels, annotations and extended resources. Pure.

Advertised is what the partition *has*, never what is free, also when it is drained, powered down or empty. A
limit that Slurm does not set has no label. Every key begins with the partition's own prefix, so that any
number of partitions and clusters share a node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from redbox_api.models import Partition, PartitionLimits
from redbox_clusters.node_labels import (
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
    """One partition, its overrides applied."""

    cluster: str
    partition: str
    is_default: bool = False
    limits: Mapping[Limit, int] = field(default_factory=dict)
    amounts: Mapping[str, int] = field(default_factory=dict)
    """Countable: nodes, cpus, mem (MB), gpus, each gres, each feature with a quantity."""
    features: Mapping[str, str] = field(default_factory=dict)
    """Versions by name; `true` for a feature without version."""


def advertised_partition(
    cluster: str, partition: Partition, override: PartitionOverride
) -> AdvertisedPartition:
    total = partition.total
    amounts = {"nodes": total.nodes, "cpus": total.cpus, "mem": total.mem_mb, "gpus": total.gpus}
    amounts |= {_gres_name(name): amount for name, amount in total.gres.items()}
    extra = override.additional_features
    return AdvertisedPartition(
        cluster=cluster,
        partition=partition.name,
        is_default=partition.is_default,
        limits=_limits(partition.limits) | override.limits(),
        amounts=amounts | {_feature_name(item.name): item.quantity for item in extra if item.quantity},
        features=dict.fromkeys(partition.features, "true") | {item.name: item.version for item in extra},
    )


def labels_of(advertised: AdvertisedPartition) -> dict[str, str]:
    """Limits, as numbers for Gt and Lt, and features."""
    key_prefix = prefix(advertised.partition, advertised.cluster)
    limits = {
        limit_key(limit, advertised.partition, advertised.cluster): str(value)
        for limit, value in advertised.limits.items()
    }
    features = {
        f"{key_prefix}/{_feature_name(name)}": _label_value(version)
        for name, version in advertised.features.items()
    }
    return {f"{key_prefix}/partition": partition_label(advertised.partition), **limits, **features}


def resources_of(advertised: AdvertisedPartition) -> dict[str, str]:
    key_prefix = prefix(advertised.partition, advertised.cluster)
    return {f"{key_prefix}/{name}": str(amount) for name, amount in advertised.amounts.items()}


def annotations_of(advertised: AdvertisedPartition) -> dict[str, str]:
    return {f"{prefix(advertised.partition, advertised.cluster)}/partition": advertised.partition}


def legacy_labels_of(advertised: AdvertisedPartition) -> dict[str, str]:
    """The Sylabs operator's labels: for one partition a node, since the keys do not name the partition."""
    numbers = {
        "nodes": advertised.limits.get(Limit.NODES),
        "wall-time": advertised.limits.get(Limit.TIME_S),
        "cpu-per-node": advertised.limits.get(Limit.CPUS_PER_NODE),
        "mem-per-node": advertised.limits.get(Limit.MEM_MB_PER_NODE),
    }
    labels = {name: str(value) for name, value in numbers.items() if value is not None}
    for name, version in advertised.features.items():
        labels.setdefault(key_part(name), _label_value(version))
        if version and version != "true":
            labels.setdefault(key_part(f"{name}_{version}"), "true")
    labels["partition"] = partition_label(advertised.partition)
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
    """`gpu:tesla` becomes `gpu.tesla`; unusual names, and our own (AMOUNTS), get the prefix `gres.`."""
    plain = PLAIN_GRES.fullmatch(gres) and gres not in AMOUNTS
    return gres.replace(":", ".") if plain else f"gres.{key_part(gres, LONGEST_LABEL - len('gres.'))}"


def _feature_name(feature: str) -> str:
    return f"feature.{key_part(feature, LONGEST_LABEL - len('feature.'))}"


def _label_value(version: str) -> str:
    return key_part(version) if version else "true"
