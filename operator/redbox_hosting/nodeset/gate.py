"""The gate that a worker passes before its pod may be deleted. Pure.

Slurm has confirmed a DRAIN, and was seen afterwards with the node drained, idle and without a job. Whatever is
unknown keeps the pod and is said. preStop is the second fence, behind this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from redbox_hosting.nodeset.identity import Identity, identity_of
from redbox_hosting.nodeset.observed import Machine, PodPhase, WorkerPod
from redbox_hosting.slurm.answers import RestNode
from redbox_hosting.slurm.snapshot import SlurmSnapshot

BASE_STATES = frozenset({"IDLE", "DOWN", "ALLOCATED", "MIXED", "UNKNOWN", "ERROR", "FUTURE", "ALLOC"})
RESTING = frozenset({"IDLE", "DOWN"})
BUSY = frozenset({"ALLOCATED", "ALLOC", "MIXED", "COMPLETING"})
RETURNING = frozenset({"UNDRAIN", "RESUME", "POWERING_UP", "POWER_UP"})
"""The node may take a job at any moment."""


class GateState(StrEnum):
    """As the condition Draining of a worker's pod has it."""

    OPEN = "Open"
    WAITING = "Waiting"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Whether the pod may be deleted, and why (not)."""

    state: GateState
    reason: str
    jobs: tuple[int, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.state is GateState.OPEN


def gate(pod: WorkerPod, snapshot: SlurmSnapshot) -> GateDecision:
    """For a pod that is condemned. The caller repeats it over live reads right before the deletion."""
    jobs = tuple(job.job_id for job in snapshot.jobs_on(pod.name))
    if pod.force_delete:
        return GateDecision(GateState.OPEN, f"forced: {pod.force_delete}", jobs)
    if pod.machine is Machine.OFF:
        return GateDecision(GateState.OPEN, "the machine is off", jobs)
    if pod.machine is Machine.LOST:
        return _unknown("the Kubernetes node does not answer, so its containers may run on")
    if pod.phase in {PodPhase.FAILED, PodPhase.UNKNOWN}:
        return _unknown(f"the pod's phase {pod.phase} does not say whether its containers run")
    if snapshot.unknown:
        return _unknown(f"Slurm's state is unknown: {snapshot.unknown}")
    node = snapshot.nodes.get(pod.name)
    if node is None:
        return _without_record(pod, jobs)
    return _by_record(pod, node, snapshot, jobs)


def _without_record(pod: WorkerPod, jobs: tuple[int, ...]) -> GateDecision:
    """preStop's word is enough for a worker that never registered."""
    if pod.was_ready or jobs:
        return _unknown("Slurm has no record of the node")
    return GateDecision(GateState.OPEN, "the worker never registered")


def _by_record(
    pod: WorkerPod, node: RestNode, snapshot: SlurmSnapshot, jobs: tuple[int, ...]
) -> GateDecision:
    identity = identity_of(pod, node)
    if identity is Identity.ANOTHER and (pod.was_ready or jobs or node.state & BUSY):
        return _unknown("the node's record belongs to another pod")
    if identity is Identity.ANOTHER:
        return GateDecision(GateState.OPEN, "the worker never registered")
    if "NOT_RESPONDING" in node.state and pod.container_started is not None:
        return _unknown("slurmd does not respond, so jobs may run on unseen")
    if jobs:
        names = ", ".join(map(str, jobs[:5])) + (f" and {len(jobs) - 5} more" if len(jobs) > 5 else "")  # noqa: PLR2004
        return GateDecision(GateState.WAITING, f"jobs on the node: {names}", jobs)
    if busy := sorted(node.state & BUSY):
        return _waiting(f"the node is {', '.join(busy)}")
    if returning := sorted(node.state & RETURNING):
        return _waiting(f"the node is {', '.join(returning)}")
    if "DRAIN" not in node.state:
        return _waiting("the node is not drained")
    bases = node.state & BASE_STATES
    if len(bases) != 1 or not bases <= RESTING:
        return _unknown(f"the node's state is {'+'.join(sorted(node.state))}")
    if pod.drain_confirmed is None:
        return _waiting("Slurm has not confirmed the drain")
    if snapshot.taken_at <= pod.drain_confirmed:
        return _waiting("Slurm was not read since it confirmed the drain")
    if identity is Identity.UNKNOWN and pod.was_ready:
        return _unknown("whose record the node has is unknown")
    return GateDecision(GateState.OPEN, "drained")


def _waiting(reason: str) -> GateDecision:
    return GateDecision(GateState.WAITING, reason)


def _unknown(reason: str) -> GateDecision:
    return GateDecision(GateState.UNKNOWN, reason)
