"""A worker as Kubernetes shows it: its pod, and the machine under it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PodPhase(StrEnum):
    """The phase of a pod. Failed by PodGC says nothing about its containers."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class WorkerMachine(StrEnum):
    """The Kubernetes node of a pod."""

    WELL = "Well"
    CORDONED = "Cordoned"
    FAULTY = "Faulty"  # a condition says so that the installation names
    LOST = "Lost"  # not ready or unreachable: its pods may run on
    OFF = "Off"  # an administrator's word: the out-of-service taint
    GONE = "Gone"  # the Node object is deleted, which ends no container
    UNREADABLE = "Unreadable"  # the operator may not read Nodes


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """The pod of one worker."""

    name: str
    uid: str
    ordinal: int
    phase: PodPhase = PodPhase.RUNNING
    is_assigned: bool = True
    is_ready: bool = True
    was_ready: bool = True
    """Whether it ever was: a worker that never was has no record of its own in Slurm."""
    is_ending: bool = False
    is_protected: bool = True
    is_exposed: bool = False
    """Whether it is to be protected, and is not: anybody may end it at this moment."""
    address: str = ""
    machine: WorkerMachine = WorkerMachine.WELL
    machine_reason: str = ""
    """Of the cordon or the fault, as its author wrote it."""
    condemned: str = ""
    """Why it is to go; empty: it is not."""
    cordon: str = ""
    """The reason of the pod's own annotation."""
    force_delete: str = ""
    altered: str = ""
    """What differs from what was created; empty: nothing."""
    deletion_cost: int = 0
    deadline: float | None = None
    created: float = 0.0
    container_ended: bool = False
    """Whether the kubelet shows the container slurmd as terminated."""
    container_started: float | None = None
    """When the one that runs did."""
    drain_confirmed: float | None = None
    """When slurmrestd answered a DRAIN for this pod with 200 and without errors."""
    has_claim: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether its containers never start again: evicted by its kubelet, not admitted, collected."""
        return self.phase in {PodPhase.FAILED, PodPhase.SUCCEEDED}

    @property
    def is_doubtful(self) -> bool:
        """Whether its phase leaves open if its containers run: PodGC writes Failed without asking them."""
        is_over = self.phase in {PodPhase.FAILED, PodPhase.UNKNOWN}
        return is_over and self.was_ready and not self.container_ended
