"""From sinfo's and scontrol's rows to partitions with amounts, limits, features and states.

A node in several partitions counts fully in each of them, as each of their users can get all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from redbox.slurm.commands.scontrol import PartitionRow
from redbox.slurm.commands.sinfo import NodeRow
from redbox_api.models import Amounts, Partition

REASONS_SHOWN = 3


def build_partitions(rows: Iterable[PartitionRow], nodes: Sequence[NodeRow]) -> tuple[Partition, ...]:
    """Every partition, also without nodes."""
    members: dict[str, dict[str, NodeRow]] = {}
    for node in nodes:
        members.setdefault(node.partition, {})[node.name] = node
    return tuple(
        _build_partition(partition, list(members.get(partition.name, {}).values())) for partition in rows
    )


def count_states(nodes: Iterable[NodeRow]) -> dict[str, int]:
    """How many nodes are in which state, each node once."""
    return dict(Counter(shown_state(node) for node in {node.name: node for node in nodes}.values()))


def shown_state(node: NodeRow) -> str:
    """The flag that keeps jobs away from the node, else its base state."""
    if "maint" in node.states:
        return "maint"
    if "drain" in node.states and node.base != "down":
        return "draining" if node.base in ("allocated", "mixed", "completing") else "drained"
    return node.base


def _build_partition(row: PartitionRow, nodes: Sequence[NodeRow]) -> Partition:
    usable = [node for node in nodes if node.usable]
    largest = _largest(nodes) if nodes else None
    free = [
        node for node in usable if node.base == "idle" and node.states <= {"idle", "cloud", "powered_down"}
    ]
    return Partition(
        name=row.name,
        is_default=row.is_default,
        state=row.state,
        total=_sum(nodes, len(nodes)),
        free=_sum(usable, len(free), free=True),
        largest_node=largest,
        limits=row.limits.model_copy(update={"max_gpus_per_node": largest.gpus if largest else None}),
        features=sorted({feature for node in nodes for feature in node.features}),
        node_states=count_states(nodes),
        reason=_reason(nodes),
    )


def _sum(nodes: Sequence[NodeRow], count: int, *, free: bool = False) -> Amounts:
    gres = Counter[str]()
    for node in nodes:
        gres.update(node.gres)
        if free:
            gres.subtract(node.gres_taken)
    return Amounts(
        nodes=count,
        cpus=sum(node.cpus_free if free else node.cpus for node in nodes),
        mem_mb=sum(max(0, node.mem_mb - (node.mem_mb_taken if free else 0)) for node in nodes),
        gpus=max(0, sum(amount for name, amount in gres.items() if name.partition(":")[0] == "gpu")),
        gres={name: max(0, amount) for name, amount in sorted(gres.items())},
    )


def _largest(nodes: Sequence[NodeRow]) -> Amounts:
    """The largest amount of each resource: the node with most CPUs may not be the one with GPUs."""
    each = [_sum([node], 1) for node in nodes]
    names = sorted({name for amounts in each for name in amounts.gres})
    return Amounts(
        nodes=1,
        cpus=max(amounts.cpus for amounts in each),
        mem_mb=max(amounts.mem_mb for amounts in each),
        gpus=max(amounts.gpus for amounts in each),
        gres={name: max(amounts.gres.get(name, 0) for amounts in each) for name in names},
    )


def _reason(nodes: Sequence[NodeRow]) -> str | None:
    """The most common reasons of unusable nodes."""
    away = Counter(node.reason for node in nodes if node.reason is not None and not node.usable)
    reasons = [
        f"{reason} ({count} {'node' if count == 1 else 'nodes'})"
        for reason, count in away.most_common(REASONS_SHOWN)
    ]
    return "; ".join(reasons) or None
