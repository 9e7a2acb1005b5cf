"""The condition of a worker's pod that says whether its node is out of service, and by whom. Pure."""

from __future__ import annotations

from redbox_hosting.controllers.workers.worker_views import PodCondition, WorkerView
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_hosting.nodeset.drains import DrainOwner, drain_owner, is_out_of_service, plain_reason
from redbox_hosting.nodeset.gate import GateState

UNKNOWN, TRUE, FALSE = "Unknown", "True", "False"
IN_SERVICE = PodCondition(FALSE, "InService", "")


def wanted_condition(view: WorkerView, world: WorkerWorld) -> PodCondition | None:
    """None: it stays as it is.

    A pod without the condition is in service. An idle worker that is to go gets none: it is gone before
    anybody could read it.
    """
    if view.pod.is_ending:
        return None
    return _of_a_condemned(view, world) if view.pod.condemned else _of_a_drain(view, world)


def _of_a_condemned(view: WorkerView, world: WorkerWorld) -> PodCondition | None:
    decision = world.gates[view.pod.name]
    if decision.state is GateState.UNKNOWN:
        return PodCondition(UNKNOWN, "Unknown", decision.reason)
    if decision.jobs and not decision.is_open:
        return PodCondition(TRUE, DrainOwner.OPERATOR, f"{view.pod.condemned}: {decision.reason}")
    return None


def _of_a_drain(view: WorkerView, world: WorkerWorld) -> PodCondition | None:
    node = world.snapshot.nodes.get(view.pod.name)
    if world.snapshot.unknown or node is None:
        return None
    if not is_out_of_service(node):
        if "MAINTENANCE" in node.state:
            by = ", ".join(world.snapshot.reservations_of(view.pod.name))
            return PodCondition(TRUE, "Reservation", f"in maintenance: {by}".rstrip(": "))
        return IN_SERVICE if view.condition and view.condition.status != FALSE else None
    owner = drain_owner(node)
    if owner is DrainOwner.SLURM and not view.pod.was_ready:
        return None  # of its predecessor
    return PodCondition(TRUE, owner, plain_reason(node.reason) or "+".join(sorted(node.state)))
