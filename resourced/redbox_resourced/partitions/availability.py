"""Whether a partition accepts jobs at all, and if not, why, in words for an administrator. Pure.

Busy nodes do not count: queueing is Slurm's job. The message changes only with what keeps jobs away, so that
a busy cluster does not cause a write of a Node's status at every job.
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
"""Slurm's states of nodes that start no jobs; the value is the reason where all nodes are unavailable."""


@dataclass(frozen=True)
class PartitionAvailability:
    """Where `accepts_jobs` is False, the virtual node is cordoned; reason and message go to its condition."""

    accepts_jobs: bool
    reason: str
    message: str


def availability_of(partition: Partition) -> PartitionAvailability:
    if partition.state.upper() != "UP":
        reason = f"Partition{partition.state.capitalize()}"
        return _closed(reason, f"Slurm has the partition in state {partition.state}.")
    if partition.total.nodes == 0:
        return _closed("NoNodes", "The partition has no nodes.")
    unavailable = {
        state: count for state, count in partition.node_states.items() if state in UNAVAILABLE_STATES
    }
    if not unavailable:
        return _open("Up", "Slurm takes jobs for the partition.")
    message = _node_counts(partition, unavailable)
    if sum(unavailable.values()) < partition.total.nodes:
        return _open("PartlyAway", message)
    most_common = max(sorted(unavailable), key=lambda state: unavailable[state])
    return _closed(UNAVAILABLE_STATES[most_common], message)


def deleted_in_slurm(partition: str) -> PartitionAvailability:
    """Slurm lists its partitions, and this one is missing."""
    return _closed("Gone", f"Slurm no longer has a partition {partition}.")


def not_selected(why: str) -> PartitionAvailability:
    """The configuration in Kubernetes excludes the partition."""
    return _closed("Unwanted", why)


def _closed(reason: str, message: str) -> PartitionAvailability:
    return PartitionAvailability(accepts_jobs=False, reason=reason, message=message)


def _open(reason: str, message: str) -> PartitionAvailability:
    return PartitionAvailability(accepts_jobs=True, reason=reason, message=message)


def _node_counts(partition: Partition, unavailable: dict[str, int]) -> str:
    states = ", ".join(f"{count} {state}" for state, count in sorted(unavailable.items()))
    counts = f"{sum(unavailable.values())} of {partition.total.nodes} nodes start no jobs: {states}."
    return f"{counts} Slurm's reason: {partition.reason}" if partition.reason else counts
