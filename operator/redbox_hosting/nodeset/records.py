"""Whether the record of a node without a pod may be deleted in Slurm. Pure.

The pod goes first. slurmctld deletes a record that a pending job asks for by name, and that job can then
never start: so Slurm's own refusal (2016) is not enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from redbox_hosting.nodeset.drains import DrainOwner, drain_owner, plain_reason
from redbox_hosting.slurm.snapshot import SlurmSnapshot


@dataclass(frozen=True, slots=True)
class RecordDecision:
    """Whether a record goes, and why it stays."""

    delete: bool
    reason: str = ""


def record_decision(name: str, pods: Collection[str], snapshot: SlurmSnapshot) -> RecordDecision:
    """`pods` are the names of all pods that are there, those that end too."""
    reason = next(_reasons_to_keep(name, pods, snapshot), "")
    return RecordDecision(delete=not reason, reason=reason)


def _reasons_to_keep(name: str, pods: Collection[str], snapshot: SlurmSnapshot) -> Iterator[str]:
    node = snapshot.nodes.get(name)
    if snapshot.unknown:
        yield f"Slurm's state is unknown: {snapshot.unknown}"
    if name in pods:
        yield "its pod is there"
    if node is None:
        yield "Slurm has no record of it"
    for job in snapshot.jobs_on(name):
        yield f"job {job.job_id} is on it"
    for job in snapshot.pending_for(name):
        yield f"pending job {job.job_id} asks for it by name"
    for reservation in snapshot.reservations_of(name):
        yield f"reservation {reservation} holds it"
    if node and drain_owner(node) is DrainOwner.ADMINISTRATOR and "DRAIN" in node.state:
        yield f"drained by an administrator: {plain_reason(node.reason)}"
