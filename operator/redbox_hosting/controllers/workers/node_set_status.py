"""The status of a NodeSet: each number and each condition is what was read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redbox_hosting.api import names
from redbox_hosting.api.status import NodeSetStatus
from redbox_hosting.api.unbuilt import unbuilt_fields
from redbox_hosting.build.config.node_conf import NO_SIZE, node_options
from redbox_hosting.build.pods.worker import dropped_fields
from redbox_hosting.controllers.workers.plans import (
    REGISTERS_WITHIN_S,
    is_available,
    is_daemon_set,
    is_registering,
    why_unusable,
)
from redbox_hosting.controllers.workers.revisions import is_outdated
from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_hosting.nodeset.gate import GateState
from redbox_hosting.nodeset.observed import WorkerMachine
from redbox_hosting.nodeset.scaling import counts
from redbox_hosting.slurm.answers import RestNode
from redbox_kube.controller.status_reporter import READY, StatusVerdict
from redbox_kube.controller.steps import Reports, StepState
from redbox_kube.status.conditions import NewCondition

MOST_NAMED = 5
UNREADABLE = "set hosting.nodes to read"
NAMESPACE_FENCE = "NamespaceFence"
"""A step whose failure degrades nothing: its condition says what is missing."""


def status_of(world: WorkerWorld, reports: Reports) -> StatusVerdict:
    """Ready: as many workers as wanted are available, all of the newest revision."""
    node_set, workers, plan = world.node_set, world.workers, world.plan
    staying = [view for view in workers if counts(view.pod)]
    min_ready_s = node_set.spec.min_ready_seconds
    available = [view for view in staying if is_available(view, world.snapshot, min_ready_s, world.now)]
    updated = [view for view in staying if not is_outdated(view.revision, view.pod_format, world.newest)]
    nodes = [world.snapshot.nodes[view.pod.name] for view in workers if view.pod.name in world.snapshot.nodes]
    before = node_set.status
    has_answer = not world.snapshot.unknown
    status = NodeSetStatus(
        desired=plan.desired,
        replicas=len(staying),
        updated_replicas=len(updated),
        ready_replicas=sum(view.pod.is_ready for view in staying),
        available_replicas=len(available),
        unavailable_replicas=max(plan.desired - len(available), 0),
        slurm_idle=_number(nodes, {"IDLE"}, without={"DRAIN"}) if has_answer else before.slurm_idle,
        slurm_allocated=_number(nodes, {"ALLOCATED", "MIXED"}) if has_answer else before.slurm_allocated,
        slurm_down=_number(nodes, {"DOWN"}) if has_answer else before.slurm_down,
        slurm_drain=_number(nodes, {"DRAIN"}) if has_answer else before.slurm_drain,
        node_set_hash=world.newest,
        selector=f"{names.LABEL_NODE_SET}={node_set.name}",
    )
    return status, [*_verdicts(world, reports, len(available), len(updated)), *_facts(world)]


def _verdicts(world: WorkerWorld, reports: Reports, available: int, updated: int) -> list[NewCondition]:
    failed = [
        f"{name}: {report.message}"
        for name, report in reports.items()
        if report.state is StepState.FAILED and name != NAMESPACE_FENCE
    ]
    waits = [report.message for report in reports.values() if report.state is StepState.WAITING]
    problems = [f"{view.pod.name}: {why}" for view in world.workers if (why := _problem(view, world))]
    refusals = [
        *([world.why_no_cell] if world.why_no_cell else []),
        *map(str, unbuilt_fields(world.node_set.spec)),
        *map(str, node_options(world.node_set, NO_SIZE).refused),
        *(f"{each} is not taken by workers: remove it" for each in dropped_fields(world.node_set)),
        *(
            f"Kubernetes node {each} has no worker, as another one has the same short name"
            for each in (world.placement.clashes if world.placement else ())
        ),
    ]
    desired = world.plan.desired
    if world.node_set.being_deleted:
        is_ready, why = False, f"it is deleted when its {len(world.workers)} workers are gone"
    elif world.why_no_cell:
        is_ready, why = False, world.why_no_cell
    elif world.node_set.spec.redbox.on_demand is not None:
        is_ready, why = False, f"{'; '.join(refusals)}; until then no worker is made, and none goes"
    elif is_daemon_set(world.node_set.spec) and world.placement is None:
        is_ready, why = False, f"{UNREADABLE}: no worker is made, and none goes for its Kubernetes node"
    else:
        is_ready = available >= desired and updated >= desired
        why = f"{available} of {desired} workers are available"
        why += f", {updated} of the newest revision" if updated != desired else ""
    stale = "Slurm is read once more before workers are chosen that are to go"
    moving = [*waits, *([stale] if world.is_stale else []), *([] if is_ready else [why])]
    bad = [*failed, *refusals, *_named(problems)]
    return [
        NewCondition(READY, "Ready" if is_ready else "NotReady", why, holds=is_ready),
        NewCondition("Progressing", "Waiting" if moving else "Done", "; ".join(moving), holds=bool(moving)),
        NewCondition("Degraded", "Failed" if bad else "NoneFailed", "; ".join(bad), holds=bool(bad)),
    ]


def _facts(world: WorkerWorld) -> Iterable[NewCondition]:
    """Conditions that are there while they say something."""
    unknown = [
        f"{name}: {gate.reason}" for name, gate in world.gates.items() if gate.state is GateState.UNKNOWN
    ]
    waiting = [name for name, gate in world.gates.items() if gate.state is GateState.WAITING]
    if unknown:
        words = (
            f"{'; '.join(_named(unknown))}. These pods stay: if their jobs are lost for good, annotate them "
            f"with {names.ANNOTATION_FORCE_DELETE}"
        )
        yield NewCondition("Draining", "Unknown", words, holds=None)
    elif world.gates:
        yield NewCondition("Draining", "Waiting", ", ".join(_named(waiting or [*world.gates])), holds=True)
    altered = [f"{view.pod.name}: {view.pod.altered}" for view in world.workers if view.pod.altered]
    if altered:
        words = (
            f"{'; '.join(_named(altered))}. Their nodes are not resumed: remove the admission plugin or the "
            f"change, and condemn the pods by the annotation {names.ANNOTATION_CONDEMNED}"
        )
        yield NewCondition("PodAltered", "Altered", words, holds=True)
    lost = [
        f"{view.pod.name} on {view.machine_name}"
        for view in world.workers
        if view.pod.machine in {WorkerMachine.LOST, WorkerMachine.OFF, WorkerMachine.GONE}
    ]
    if lost:
        words = (
            f"{', '.join(_named(lost))}. Jobs that Slurm requeues from there may run twice: when the machine "
            "is off, taint the Kubernetes node with node.kubernetes.io/out-of-service"
        )
        yield NewCondition("MachinesLost", "Lost", words, holds=True)
    if missing := [view.pod.name for view in world.workers if _is_missing(view, world)]:
        words = (
            f"Slurm has no record of {', '.join(_named(missing))}, although slurmd runs there: somebody "
            f"deleted it. If no job runs there, annotate the pod with {names.ANNOTATION_FORCE_DELETE}"
        )
        yield NewCondition("NodesMissing", "NoRecord", words, holds=True)
    are_needed = is_daemon_set(world.node_set.spec) and world.placement is None and world.cell is not None
    if are_needed or any(view.pod.machine is WorkerMachine.UNREADABLE for view in world.workers):
        words = f"cordons and lost machines are not seen: {UNREADABLE}" if world.workers else UNREADABLE
        yield NewCondition("NodesUnreadable", "NoRights", words, holds=True)
    if world.snapshot.unknown:
        yield NewCondition("SlurmRead", "Unknown", world.snapshot.unknown, holds=None)


def _problem(view: WorkerView, world: WorkerWorld) -> str:
    """Why its container does not start, or Slurm cannot use it."""
    is_expected = (
        view.pod.is_ready and counts(view.pod) and not is_registering(view, world.snapshot, world.now)
    )
    return view.problem or (why_unusable(view.pod, world.snapshot) if is_expected else "")


def _is_missing(view: WorkerView, world: WorkerWorld) -> bool:
    """Whether a worker that has long been ready is not in Slurm, where it would never appear by itself."""
    since = view.ready_since
    return (
        since is not None
        and world.now - since > REGISTERS_WITHIN_S
        and not world.snapshot.unknown
        and view.pod.name not in world.snapshot.nodes
    )


def _named(texts: Sequence[str]) -> list[str]:
    more = len(texts) - MOST_NAMED
    return [*texts[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]


def _number(nodes: Iterable[RestNode], states: set[str], *, without: Iterable[str] = ()) -> int:
    return sum(bool(node.state & states) and not node.state & set(without) for node in nodes)
