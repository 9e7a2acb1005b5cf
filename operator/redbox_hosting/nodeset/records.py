"""Whether the record of a node without a pod may be deleted in Slurm. Pure.

The pod goes first. slurmctld deletes a record that a pending job asks for by name, and that job can then never
start: so Slurm's own refusal (2016) is not enough.
"""

from __future__ import annotations

from collections.abc import Collection
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
    if snapshot.unknown:
        return RecordDecision(delete=False, reason=f"Slurm's state is unknown: {snapshot.unknown}")
    if name in pods:
        return RecordDecision(delete=False, reason="its pod is there")
    node = snapshot.nodes.get(name)
    if node is None:
        return RecordDecision(delete=False, reason="Slurm has no record of it")
    if jobs := snapshot.jobs_on(name):
        return RecordDecision(delete=False, reason=f"job {jobs[0].job_id} is on it")
    if pending := snapshot.pending_for(name):
        return RecordDecision(delete=False, reason=f"pending job {pending[0].job_id} asks for it by name")
    if held := snapshot.reservations_of(name):
        return RecordDecision(delete=False, reason=f"reservation {held[0]} holds it")
    if drain_owner(node) is DrainOwner.ADMINISTRATOR and "DRAIN" in node.state:
        reason = f"drained by an administrator: {plain_reason(node.reason)}"
        return RecordDecision(delete=False, reason=reason)
    return RecordDecision(delete=True)
