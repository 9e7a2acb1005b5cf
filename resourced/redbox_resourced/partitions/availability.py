"""Whether a partition can take jobs at all now, and if not, why, in words for an administrator. Pure.

Busy nodes are no reason: queueing is Slurm's. What is said changes only with what keeps jobs away, so that a
cluster at work does not have its nodes' statuses written at every job.
"""

from __future__ import annotations

from dataclasses import dataclass

from redbox_api.models import Partition

UNAVAILABLE_STATES = {
    "maint": "Maintenance",
    "drained": "Drained",
    "draining": "Draining",
    "down": "Down",
    "fail": "Failing",
    "failing": "Failing",
    "error": "Error",
    "unknown": "Unknown",
    "future": "Future",
}
"""Slurm's words for nodes that start no job, with ours for a partition that has no others."""


@dataclass(frozen=True)
class PartitionAvailability:
    """`takes_jobs` is what keeps its node open; `reason` is one word, `message` a sentence or two."""

    takes_jobs: bool
    reason: str
    message: str


def availability_of(partition: Partition) -> PartitionAvailability:
    """As Slurm says it."""
    if partition.state.upper() != "UP":
        word = partition.state.capitalize()
        return _closed(f"Partition{word}", f"Slurm has the partition in state {partition.state}.")
    if partition.total.nodes == 0:
        return _closed("NoNodes", "The partition has no nodes.")
    away = {state: count for state, count in partition.node_states.items() if state in UNAVAILABLE_STATES}
    if not away:
        return _open("Up", "Slurm takes jobs for the partition.")
    message = _counted(partition, away)
    if sum(away.values()) < partition.total.nodes:
        return _open("PartlyAway", message)
    commonest = max(sorted(away), key=lambda state: away[state])
    return _closed(UNAVAILABLE_STATES[commonest], message)


def deleted_in_slurm(partition: str) -> PartitionAvailability:
    """Slurm lists its partitions, and this is none of them."""
    return _closed("Gone", f"Slurm has no partition {partition} any more.")


def not_selected(why: str) -> PartitionAvailability:
    """An administrator of Kubernetes wants no node for it."""
    return _closed("Unwanted", why)


def _closed(reason: str, message: str) -> PartitionAvailability:
    return PartitionAvailability(takes_jobs=False, reason=reason, message=message)


def _open(reason: str, message: str) -> PartitionAvailability:
    return PartitionAvailability(takes_jobs=True, reason=reason, message=message)


def _counted(partition: Partition, away: dict[str, int]) -> str:
    states = ", ".join(f"{count} {state}" for state, count in sorted(away.items()))
    said = f"{sum(away.values())} of {partition.total.nodes} nodes start no jobs: {states}."
    return f"{said} Slurm's reason: {partition.reason}" if partition.reason else said
