"""Labels and resources of partitions on nodes: valid and unique names.

resourced publishes these keys, the operator uses them in node affinities, without a request to each other. A
name that is not valid in Kubernetes gets a short digest of the original, so that `GPU_big` and `gpu-big`
stay two partitions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import product
from typing import Any

from redbox_clusters.names import GROUP

DIGEST_LENGTH = 6
LONGEST_LABEL = 63
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
NUMBER = re.compile(r"[0-9]{1,18}")
DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Limit(StrEnum):
    """Limits of a partition for one job; without a limit there is no label."""

    NODES = "max-nodes"
    CPUS_PER_NODE = "max-cpus-per-node"
    MEM_MB_PER_NODE = "max-mem-mb-per-node"
    GPUS_PER_NODE = "max-gpus-per-node"
    TIME_S = "max-time-s"


def dns_label(name: str) -> str:
    """The name as one label of a DNS name."""
    return name if DNS_LABEL.fullmatch(name) else _digested(name.lower(), name, r"[^a-z0-9-]+", "-")


def partition_label(partition: str) -> str:
    """The name as a label's value: unchanged, where that is valid."""
    return key_part(partition)


def prefix(partition: str, cluster: str) -> str:
    """`<partition>.<cluster>.redbox.dev`: before the slash of every key of this partition."""
    return f"{dns_label(partition)}.{dns_label(cluster)}.{GROUP}"


def limit_key(limit: Limit, partition: str, cluster: str) -> str:
    """The label of a limit."""
    return f"{prefix(partition, cluster)}/{limit.value}"


def gateway_key(cluster: str) -> str:
    """The label, `true`, by which an administrator makes a node a gateway of a cluster."""
    return f"{GROUP}/gateway.{key_part(cluster, LONGEST_LABEL - len('gateway.'))}"


def key_part(name: str, longest: int = LONGEST_LABEL) -> str:
    """The name as (a part of) a key's name after the slash."""
    fits = len(name) <= longest and LABEL_VALUE.fullmatch(name)
    return name if fits else _digested(name, name, r"[^\w.-]+", "_", longest)


def virtual_node(partition: str, cluster: str) -> str:
    """The name of the virtual node of a partition; the dot keeps (`a-b`, `c`) and (`a`, `b-c`) apart."""
    return f"{dns_label(cluster)}.{dns_label(partition)}"


def fit_terms(needs: dict[Limit, int], partition: str, cluster: str) -> list[dict[str, Any]]:
    """NodeSelectorTerms that accept a node whose limits are high enough, or not set.

    Expressions of one term must all hold and one term must: so there is a term for each choice of
    "high enough" and "not set", 2^n of them for n <= 5 needs.
    """
    choices = []
    for limit, need in sorted(needs.items()):
        key = limit_key(limit, partition, cluster)
        enough = {"key": key, "operator": "Gt", "values": [str(need - 1)]}
        choices.append((enough, {"key": key, "operator": "DoesNotExist"}))
    return [{"matchExpressions": list(chosen)} for chosen in product(*choices)] if choices else []


def described_needs(terms: Sequence[Mapping[str, Any]]) -> list[str]:
    """The requirements in such terms, for comparison with a node's labels.

    Others may have written the terms: expressions that are not ours, or without a number, are left out.
    """
    expressions = terms[0].get("matchExpressions", ()) if terms else ()
    return [
        f"{expression['key']} of {int(expression['values'][0]) + 1} or more (or none)"
        for expression in expressions
        if expression["operator"] == "Gt" and NUMBER.fullmatch(expression["values"][0])
    ]


def _digested(written: str, name: str, invalid: str, filler: str, longest: int = LONGEST_LABEL) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()[:DIGEST_LENGTH]
    room = longest - DIGEST_LENGTH - 1
    readable = re.sub(invalid, filler, written, flags=re.ASCII)[:room].strip("-_.")
    return f"{readable}-{digest}" if readable else f"x-{digest}"
