"""The gate that a worker passes before its pod may be deleted. Pure.

Slurm has confirmed a DRAIN, and was seen afterwards with the node drained, idle and without a job. Anything
unknown keeps the pod, with its reason. preStop is the second fence, behind this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from redbox_hosting.nodeset.identity import Identity, identity_of
from redbox_hosting.nodeset.observed import PodPhase, WorkerMachine, WorkerPod
from redbox_hosting.slurm.answers import RestNode
from redbox_hosting.slurm.snapshot import SlurmSnapshot

BASE_STATES = frozenset({"IDLE", "DOWN", "ALLOCATED", "MIXED", "UNKNOWN", "ERROR", "FUTURE", "ALLOC"})
RESTING = frozenset({"IDLE", "DOWN"})
BUSY = frozenset({"ALLOCATED", "ALLOC", "MIXED", "COMPLETING"})
RETURNING = frozenset({"UNDRAIN", "RESUME", "POWERING_UP", "POWER_UP"})
"""The node may take a job at any moment."""
MOST_NAMED = 5


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
    decision = _by_kubernetes(pod, snapshot, jobs) or _by_identity(pod, snapshot, jobs)
    if decision:
        return decision
    drained = GateDecision(GateState.OPEN, "drained")
    node = snapshot.nodes[pod.name]
    return next(chain(_signs_of_life(node, jobs), _doubtful_drains(pod, node, snapshot)), drained)


def _by_kubernetes(pod: WorkerPod, snapshot: SlurmSnapshot, jobs: tuple[int, ...]) -> GateDecision | None:
    """A decision by what Kubernetes shows of the pod and its machine."""
    if pod.force_delete:
        return GateDecision(GateState.OPEN, f"forced: {pod.force_delete}", jobs)
    if pod.machine is WorkerMachine.OFF:
        return GateDecision(GateState.OPEN, "the machine is off", jobs)
    if pod.machine is WorkerMachine.GONE:
        return _by_identity(pod, snapshot, jobs) or _by_the_word_of_slurm(snapshot.nodes[pod.name], jobs)
    if pod.machine is WorkerMachine.LOST:
        return _unknown("the Kubernetes node does not answer, so its containers may run on")
    if pod.is_doubtful:
        return _unknown(f"the pod's phase {pod.phase} does not say whether its containers run")
    return None


def _by_the_word_of_slurm(node: RestNode, jobs: tuple[int, ...]) -> GateDecision:
    """Of a machine whose Node object is deleted: it may run on, until Slurm has taken its jobs from it."""
    if "DOWN" not in node.state:
        return _unknown("the Kubernetes node is deleted, but Slurm does not show that slurmd is gone")
    if jobs:
        return _jobs_on_it(jobs)
    return GateDecision(GateState.OPEN, "the machine is off")


def _by_identity(pod: WorkerPod, snapshot: SlurmSnapshot, jobs: tuple[int, ...]) -> GateDecision | None:
    """None where the record is there and may be this pod's.

    A worker that never registered has none, or its predecessor's: then preStop's word is enough.
    """
    if snapshot.unknown:
        return _unknown(f"Slurm's state is unknown: {snapshot.unknown}")
    node = snapshot.nodes.get(pod.name)
    if node is not None and identity_of(pod, node) is not Identity.ANOTHER:
        return None
    if pod.was_ready or jobs or (node and node.state & BUSY):
        missing = "Slurm has no record of the node"
        return _unknown("the node's record belongs to another pod" if node else missing)
    return GateDecision(GateState.OPEN, "the worker never registered")


def _signs_of_life(node: RestNode, jobs: tuple[int, ...]) -> Iterator[GateDecision]:
    if jobs:
        yield _jobs_on_it(jobs)
    if active := sorted(node.state & (BUSY | RETURNING)):
        yield _waiting(f"the node is {', '.join(active)}")


def _doubtful_drains(pod: WorkerPod, node: RestNode, snapshot: SlurmSnapshot) -> Iterator[GateDecision]:
    bases = node.state & BASE_STATES
    if "NOT_RESPONDING" in node.state and pod.phase is not PodPhase.PENDING and not pod.container_ended:
        yield _unknown("slurmd does not respond, so jobs may run on unseen")
    if "DRAIN" not in node.state:
        yield _waiting("the node is not drained")
    if len(bases) != 1 or not bases <= RESTING:
        yield _unknown(f"the node's state is {'+'.join(sorted(node.state))}")
    if pod.drain_confirmed is None:
        yield _waiting("Slurm has not confirmed the drain")
    elif snapshot.taken_at <= pod.drain_confirmed:
        yield _waiting("Slurm was not read since it confirmed the drain")
    if identity_of(pod, node) is Identity.UNKNOWN and pod.was_ready:
        yield _unknown("it is unknown which pod the node's record belongs to")


def _jobs_on_it(jobs: tuple[int, ...]) -> GateDecision:
    more = f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else ""
    named = ", ".join(map(str, jobs[:MOST_NAMED]))
    return GateDecision(GateState.WAITING, f"jobs on the node: {named}{more}", jobs)


def _waiting(reason: str) -> GateDecision:
    return GateDecision(GateState.WAITING, reason)


def _unknown(reason: str) -> GateDecision:
    return GateDecision(GateState.UNKNOWN, reason)
