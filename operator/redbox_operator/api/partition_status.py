"""The partitions in a SlurmCluster's status: what each has, and what of it is free.

Whatever red-box sends fits into the object: lists, texts and numbers are bounded here, because a status that
the API server rejects would be lost as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pydantic import Field

from redbox_api.models import Amounts, Partition, PartitionLimits
from redbox_kube.status.models import StatusPart
from redbox_shared.printable import printable

LISTED_AT_MOST = 256
NAMES_AT_MOST = 1024
LONGEST_NAME = 128
LONGEST_STATE = 32
LONGEST_REASON = 256
STATES_AT_MOST = 16
MOST = 2**53 - 1
"""The greatest number that every reader of JSON reads exactly."""
IN_USE = frozenset({"idle", "mixed", "allocated", "completing", "planned"})
"""States between which nodes change as jobs begin and end."""


class PartitionAmounts(StatusPart):
    """Countable resources."""

    nodes: int = Field(ge=0, le=MOST, description="Number of nodes; of the free ones, those without a job.")
    cpus: int = Field(ge=0, le=MOST, description="Number of CPUs.")
    mem_mb: int = Field(ge=0, le=MOST, description="Memory in MB, as Slurm counts it (2^20 bytes).")
    gpus: int = Field(ge=0, le=MOST, description="Number of GPUs: all GRES of the name gpu.")


class PartitionStatusLimits(StatusPart):
    """A partition's limits for one job; a field that is missing is UNLIMITED."""

    max_time_s: int | None = Field(None, description="The longest time limit of a job, in seconds.")
    default_time_s: int | None = Field(None, description="The time limit of a job that names none.")
    max_nodes: int | None = Field(None, description="The most nodes of one job.")
    max_cpus_per_node: int | None = Field(None, description="The most CPUs of one job on a node.")
    max_mem_mb_per_node: int | None = Field(None, description="The most memory of one job on a node, in MB.")


class PartitionStatus(StatusPart):
    """One partition. A node in several partitions counts fully in each of them."""

    name: str = Field(max_length=LONGEST_NAME)
    state: str = Field(max_length=LONGEST_STATE, description="UP, DOWN, DRAIN or INACTIVE.")
    default: bool = Field(default=False, description="Whether jobs that name no partition run in it.")
    limits: PartitionStatusLimits
    nodes: dict[str, int] = Field(
        max_length=STATES_AT_MOST, description="Number of nodes by their state in Slurm."
    )
    total: PartitionAmounts = Field(description="All resources of its nodes.")
    free: PartitionAmounts = Field(
        description="What is free on nodes that start jobs. Written when a state changes, and else at most "
        "every 30 seconds; old while the condition Reachable or Current is False."
    )
    largest_node: PartitionAmounts | None = Field(
        None, description="Of each resource the most that any one node has; missing without nodes."
    )
    reason: str | None = Field(
        None, max_length=LONGEST_REASON, description="The most common reasons of nodes that start no jobs."
    )


def partition_statuses(partitions: Iterable[Partition]) -> list[PartitionStatus]:
    """The first ones, the default before all others, then by name."""
    ordered = sorted(partitions, key=lambda partition: (not partition.is_default, partition.name))
    statuses = [_status_of(partition) for partition in ordered if is_name(partition.name)]
    return statuses[:LISTED_AT_MOST]


def partition_names(partitions: Iterable[Partition]) -> list[str]:
    return sorted(partition.name for partition in partitions if is_name(partition.name))[:NAMES_AT_MOST]


def differ_in_use_only(before: Sequence[PartitionStatus], after: Sequence[PartitionStatus]) -> bool:
    """Whether jobs that begin and end explain every difference: no state and no limit has changed."""
    return list(map(_without_use, before)) == list(map(_without_use, after))


def bounded_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Numbers of nodes by state, the most common states first where there are too many."""
    common = sorted(counts, key=lambda state: (-counts[state], state))[:STATES_AT_MOST]
    return {printable(state[:LONGEST_STATE]): _bounded(counts[state]) for state in sorted(common)}


def bounded(partition: Partition) -> Partition:
    """What the status shows of it, in a bounded number of bytes."""
    largest = partition.largest_node
    return partition.model_copy(
        update={
            "state": printable(partition.state[:LONGEST_STATE]),
            "total": _bounded_amounts(partition.total),
            "free": _bounded_amounts(partition.free),
            "largest_node": None if largest is None else _bounded_amounts(largest),
            "limits": PartitionLimits.model_validate(_limits(partition.limits).model_dump()),
            "features": [],
            "node_states": bounded_counts(partition.node_states),
            "reason": None if partition.reason is None else printable(partition.reason[:LONGEST_REASON]),
        }
    )


def _bounded_amounts(amounts: Amounts) -> Amounts:
    return Amounts.model_validate(_amounts(amounts).model_dump())


def _without_use(partition: PartitionStatus) -> PartitionStatus:
    away = {state: count for state, count in partition.nodes.items() if state not in IN_USE}
    return partition.model_copy(update={"free": None, "nodes": away})


def _status_of(partition: Partition) -> PartitionStatus:
    return PartitionStatus(
        name=partition.name,
        state=printable(partition.state[:LONGEST_STATE]),
        default=partition.is_default,
        limits=_limits(partition.limits),
        nodes=bounded_counts(partition.node_states),
        total=_amounts(partition.total),
        free=_amounts(partition.free),
        largest_node=_amounts(partition.largest_node) if partition.largest_node else None,
        reason=printable(partition.reason[:LONGEST_REASON]) if partition.reason else None,
    )


def _limits(limits: PartitionLimits) -> PartitionStatusLimits:
    given = limits.model_dump(include=set(PartitionStatusLimits.model_fields), exclude_none=True)
    return PartitionStatusLimits(**{name: _bounded(value) for name, value in given.items()})


def _amounts(amounts: Amounts) -> PartitionAmounts:
    return PartitionAmounts(
        **{name: _bounded(getattr(amounts, name)) for name in PartitionAmounts.model_fields}
    )


def _bounded(number: int) -> int:
    return min(max(number, 0), MOST)


def is_name(name: str) -> bool:
    """Whether a job could name it; a part of a longer name would be the name of another partition."""
    return 0 < len(name.encode()) <= LONGEST_NAME and printable(name) == name
