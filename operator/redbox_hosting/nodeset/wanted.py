"""What each node should be, and the one act that brings it there.

Levels, not events: the act follows from the snapshot alone, so that a missed or repeated event changes
nothing.
Unknown asks for no act.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from redbox_hosting.nodeset.drains import DrainOwner, drain_owner, our_reason, plain_reason
from redbox_hosting.nodeset.identity import Identity, identity_of
from redbox_hosting.nodeset.observed import WorkerMachine, WorkerPod
from redbox_hosting.slurm.answers import RestJob, RestNode
from redbox_hosting.slurm.old_reasons import NOT_RESPONDING
from redbox_hosting.slurm.snapshot import SlurmSnapshot

POWER_FLAGS = frozenset(
    {"POWERING_UP", "POWERING_DOWN", "POWER_DOWN", "POWER_UP", "POWER_DRAIN", "REBOOT_ISSUED"}
)
"""RESUME then would undo what Slurm is doing. POWERED_DOWN is not among them."""
BUSY = frozenset({"ALLOCATED", "MIXED"})
UNPOWERED = frozenset({"POWERING_UP", "POWERED_DOWN"})
GHOST_MARGIN_S = 60.0
"""A job that began this long before its node's boot cannot run on it. boot_time itself moves by a second."""


@dataclass(frozen=True, slots=True)
class WantedState:
    """Available, or drained for a reason."""

    drained_for: str = ""

    @property
    def is_available(self) -> bool:
        return not self.drained_for


class NodeVerb(StrEnum):
    """A write to a node's record."""

    DRAIN = "Drain"
    RESUME = "Resume"
    DOWN = "Down"


@dataclass(frozen=True, slots=True)
class NodeAct:
    """A write that is due, or why there is none."""

    verb: NodeVerb | None
    reason: str = ""


def wanted_state(pod: WorkerPod) -> WantedState:
    """What the operator wants of a worker's node; an administrator's drain stands besides."""
    if pod.condemned:
        return WantedState(our_reason(pod.condemned))
    if pod.cordon:
        return WantedState(our_reason(f"cordoned: {pod.cordon}"))
    if pod.machine is WorkerMachine.CORDONED:
        return WantedState(our_reason(f"Kubernetes node cordoned: {pod.machine_reason}".rstrip(": ")))
    if pod.machine is WorkerMachine.FAULTY:
        return WantedState(our_reason(f"Kubernetes node has {pod.machine_reason}"))
    return WantedState()


def next_act(
    pod: WorkerPod,
    snapshot: SlurmSnapshot,
    *,
    lost_drain: str = "",
) -> NodeAct:
    """The write that is due for this pod's node.

    `lost_drain`: the reason of an administrator's drain that was seen before a power transition.
    """
    node = snapshot.nodes.get(pod.name)
    if node is None or (obstacle := next(_obstacles(pod, node, snapshot), "")):
        unknown = f"Slurm's state is unknown: {snapshot.unknown}"
        missing = unknown if snapshot.unknown else "Slurm has no record of the node"
        return NodeAct(None, missing if node is None else obstacle)
    if words := _reason_for_down(pod, node, snapshot):
        return NodeAct(NodeVerb.DOWN, our_reason(words))
    owner = drain_owner(node)
    wanted = wanted_state(pod)
    if lost_drain and owner is DrainOwner.NOBODY and not _would_end_a_job(node):
        return NodeAct(NodeVerb.DRAIN, lost_drain)
    if not wanted.is_available:
        return _drain(pod, node, owner, wanted)
    if owner is DrainOwner.NOBODY:
        return NodeAct(None)
    reason = next(_reasons_to_wait(pod, node, owner), "")
    return NodeAct(None, reason) if reason else NodeAct(NodeVerb.RESUME)


def _obstacles(pod: WorkerPod, node: RestNode, snapshot: SlurmSnapshot) -> Iterator[str]:
    """Why nothing may be written to the record."""
    if snapshot.unknown:
        yield f"Slurm's state is unknown: {snapshot.unknown}"
    if pod.is_ending:
        yield "the pod ends; its preStop drains"
    if identity_of(pod, node) is Identity.ANOTHER:
        yield "the node's record belongs to another pod"


def _drain(pod: WorkerPod, node: RestNode, owner: DrainOwner, wanted: WantedState) -> NodeAct:
    """An administrator's reason stays: the DRAIN that confirms it repeats it."""
    is_draining = "DRAIN" in node.state
    may_go = bool(pod.condemned) or pod.machine is WorkerMachine.CORDONED
    if is_draining and (pod.drain_confirmed is not None or not may_go):
        return NodeAct(None)
    if _would_end_a_job(node):
        return NodeAct(None, "a job waits for the node to power up: DRAIN would end it")
    foreign = plain_reason(node.reason) if owner is DrainOwner.ADMINISTRATOR else ""
    return NodeAct(NodeVerb.DRAIN, foreign or wanted.drained_for)


def _would_end_a_job(node: RestNode) -> bool:
    """Whether DRAIN would requeue its job, as slurmctld does while a node powers up."""
    return bool(node.state & BUSY) and bool(node.state & UNPOWERED)


def _reasons_to_wait(pod: WorkerPod, node: RestNode, owner: DrainOwner) -> Iterator[str]:
    """Why a node that is out of service is not resumed.

    Of a pod that still ends no other one has the name: the API server allows one.
    """
    reason = plain_reason(node.reason)
    if owner is DrainOwner.ADMINISTRATOR:
        yield f"drained by an administrator: {reason}"
    if reason == NOT_RESPONDING:
        yield "slurmd does not respond"
    if powering := sorted(node.state & POWER_FLAGS):
        yield f"the node is {', '.join(powering)}"
    if not pod.is_ready:
        yield "the pod is not ready"
    if pod.is_exposed:
        yield "the pod is not protected yet"
    if pod.altered:
        yield f"the pod was altered: {pod.altered}"
    if identity_of(pod, node) is not Identity.OWN:
        yield "it is unknown which pod the node's record belongs to"


def _reason_for_down(pod: WorkerPod, node: RestNode, snapshot: SlurmSnapshot) -> str:
    """Why its jobs are to be requeued; empty: they are not."""
    if pod.force_delete and "DOWN" not in node.state and snapshot.jobs_on(pod.name):
        return f"forced: {pod.force_delete}"
    if ghost := _ghost(pod, node, snapshot):
        return f"job {ghost.job_id} began before this container and is lost"
    return ""


def _ghost(pod: WorkerPod, node: RestNode, snapshot: SlurmSnapshot) -> RestJob | None:
    """A job that Slurm shows as running in a container that began after it.

    Slurm finds out itself when the node registers, but not in a maintenance reservation. Elsewhere
    a clock that was stepped would show the same. Slurm and the kubelet must agree: one of them with a wrong
    clock would end the jobs of all nodes.
    """
    if "MAINTENANCE" not in node.state and not snapshot.reservations_of(pod.name):
        return None
    if not node.boot_time or pod.container_started is None or "DOWN" in node.state:
        return None
    container_began = min(node.boot_time, pod.container_started)
    for job in snapshot.jobs_on(pod.name):
        began = job.start_time
        if job.job_state == {"RUNNING"} and began and began + GHOST_MARGIN_S < container_began:
            return job
    return None
