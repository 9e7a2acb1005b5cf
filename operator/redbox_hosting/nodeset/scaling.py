"""Which workers are made, which are to go, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count, islice
from math import inf

from redbox_hosting.nodeset.observed import PodPhase, WorkerMachine, WorkerPod
from redbox_hosting.slurm.snapshot import SlurmSnapshot

SCALE_IN = "scale-in"
"""The reason of a pod that is condemned only because there are too many."""


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """Ordinals to create, pods to condemn, and condemned pods that are wanted again."""

    create: tuple[int, ...] = ()
    condemn: tuple[WorkerPod, ...] = ()
    spare: tuple[WorkerPod, ...] = ()
    lost: tuple[WorkerPod, ...] = ()
    """On machines that do not answer: replaced under another ordinal, and not touched."""


def counts(pod: WorkerPod) -> bool:
    """Whether it is one of status.replicas: neither ending nor condemned nor replaced."""
    return not pod.is_ending and not pod.condemned and not is_replaced(pod)


def is_replaced(pod: WorkerPod) -> bool:
    """A worker on a lost machine gets a replacement, unless its claim is bound to it."""
    is_lost = pod.machine in {WorkerMachine.LOST, WorkerMachine.OFF, WorkerMachine.GONE}
    return (is_lost or pod.is_doubtful) and not pod.has_claim


def holds_place(pod: WorkerPod) -> bool:
    """Whether a worker need not be made for it: one that is to be updated is replaced when it ends."""
    return not pod.is_ending and pod.condemned != SCALE_IN and not is_replaced(pod)


def scale_plan(
    desired: int, pods: Sequence[WorkerPod], snapshot: SlurmSnapshot, returning: int = 0
) -> ScalePlan:
    """What brings the number of workers to `desired`. Creation never needs Slurm.

    `returning`: those that end, and will be made again under their own names.
    """
    lost = tuple(pod for pod in pods if is_replaced(pod) and not pod.is_ending)
    active = [pod for pod in pods if holds_place(pod)]
    if len(active) > desired:
        order = removal_order(active, snapshot)
        return ScalePlan(condemn=tuple(order[: len(active) - desired]), lost=lost)
    missing = max(desired - len(active) - returning, 0)
    waiting = [
        pod
        for pod in pods
        if pod.condemned == SCALE_IN and not pod.is_ending and pod.is_protected and not is_replaced(pod)
    ]
    spare = removal_order(waiting, snapshot)[::-1][:missing]
    create = free_ordinals(missing - len(spare), {pod.ordinal for pod in pods})
    return ScalePlan(create=create, spare=tuple(spare), lost=lost)


def free_ordinals(number: int, taken: Collection[int]) -> tuple[int, ...]:
    """The lowest ones that no pod has. A pod that still ends has its name."""
    return tuple(islice((ordinal for ordinal in count() if ordinal not in taken), number))


def removal_order(pods: Sequence[WorkerPod], snapshot: SlurmSnapshot) -> list[WorkerPod]:
    """The first one is the first to go.

    Condemned for another reason, unassigned, pending, not ready, lower deletion cost, idle before busy,
    earlier deadline, cordoned, higher ordinal, newer. Without an answer from Slurm every worker is busy.
    """
    return sorted(pods, key=lambda pod: _removal_key(pod, snapshot))


def _removal_key(pod: WorkerPod, snapshot: SlurmSnapshot) -> tuple[float, ...]:
    return (
        not pod.condemned,
        pod.is_assigned,
        pod.phase is not PodPhase.PENDING,
        pod.is_ready,
        pod.deletion_cost,
        _is_busy(pod, snapshot),
        inf if pod.deadline is None else pod.deadline,
        not (pod.cordon or pod.machine in {WorkerMachine.CORDONED, WorkerMachine.FAULTY}),
        -pod.ordinal,
        -pod.created,
    )


def _is_busy(pod: WorkerPod, snapshot: SlurmSnapshot) -> bool:
    node = snapshot.nodes.get(pod.name)
    if snapshot.unknown or (node is None and pod.was_ready):
        return True
    return bool(snapshot.jobs_on(pod.name)) or bool(
        node and node.state & {"ALLOCATED", "ALLOC", "MIXED", "COMPLETING"}
    )


def deadline_of(pod: WorkerPod, snapshot: SlurmSnapshot) -> float | None:
    """The time at which its last job ends by its limit, unless an annotation has one. None: there is none."""
    if pod.deadline is not None:
        return pod.deadline
    ends = [job.end_time for job in snapshot.jobs_on(pod.name)]
    limits = [end for end in ends if end is not None]
    return float(max(limits)) if ends and len(limits) == len(ends) else None
