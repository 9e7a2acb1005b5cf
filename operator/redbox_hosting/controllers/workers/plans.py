"""What is due for the workers of a NodeSet: which are made, which are to go and why, and which stay.

Pure. Scale-in and update condemn; the gate alone decides when a condemned worker goes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redbox_hosting.api.nodeset import NodeSetSpec, ScalingMode, UpdateType
from redbox_hosting.controllers.workers.revisions import is_outdated
from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.nodeset.drains import DrainOwner, drain_owner, our_reason, plain_reason
from redbox_hosting.nodeset.identity import Identity, identity_of
from redbox_hosting.nodeset.observed import WorkerMachine, WorkerPod
from redbox_hosting.nodeset.placement import Placement
from redbox_hosting.nodeset.scaling import SCALE_IN, holds_place, is_replaced, removal_order, scale_plan
from redbox_hosting.nodeset.wanted import NodeAct, NodeVerb, next_act
from redbox_hosting.slurm.snapshot import SlurmSnapshot

UPDATE, MACHINE_OFF, DELETED = "update", "its machine is off", "the NodeSet is deleted"
NOT_SELECTED = "its Kubernetes node is not selected"
HAS_FAILED, FORCED = "its pod has failed", "forced"
"""Other reasons are a user's: such a worker is replaced, and never spared."""
PROVEN_OFF = frozenset({WorkerMachine.OFF, WorkerMachine.GONE})
DEFAULT_UNAVAILABLE = "25%"
UNUSABLE = frozenset({"DOWN", "INVALID_REG"})
REGISTERS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class WorkersPlan:
    """Ordinals to create, and the workers whose annotation `condemned` changes; empty: it goes."""

    desired: int
    create: tuple[int, ...] = ()
    condemned: Mapping[str, str] = field(default_factory=dict)
    """Reasons by the names of pods."""
    on_machines: Mapping[str, str] = field(default_factory=dict)
    """Workers to create by name, with their Kubernetes nodes."""

    @property
    def creates(self) -> bool:
        return bool(self.create or self.on_machines)


def desired_number(spec: NodeSetSpec, pods: Sequence[WorkerPod], before: int | None) -> int:
    """Without `replicas` as many as there are, and on demand, which is not built.

    `before`: as many as were wanted; a worker on its way from one revision to the next is not there.
    """
    if spec.redbox.on_demand is None and spec.replicas is not None:
        return spec.replicas
    return sum(map(holds_place, pods)) if before is None else before


def is_daemon_set(spec: NodeSetSpec) -> bool:
    """Whether each Kubernetes node that is selected has a worker."""
    return spec.scaling_mode is ScalingMode.DAEMON_SET and spec.redbox.on_demand is None


def workers_plan(
    spec: NodeSetSpec,
    views: Sequence[WorkerView],
    snapshot: SlurmSnapshot,
    newest: str,
    now: float,
    *,
    before: int | None = None,
) -> WorkersPlan:
    """Of a NodeSet that is not being deleted. `before`: how many workers were wanted."""
    pods = [view.pod for view in views]
    desired = desired_number(spec, pods, before)
    # A worker that ends for its update is replaced under its own name.
    returning = sum(
        pod.is_ending and pod.condemned not in {"", SCALE_IN} and not is_replaced(pod)
        for pod in pods
        if pod.condemned != MACHINE_OFF or pod.has_claim
    )
    plan = scale_plan(desired, pods, snapshot, returning)
    condemned = {pod.name: SCALE_IN for pod in plan.condemn if not pod.condemned}
    condemned |= {pod.name: "" for pod in plan.spare}
    condemned |= _condemned_by_fate(pods)
    going = {name for name, reason in condemned.items() if reason}
    staying = [view for view in views if view.pod.name not in going]
    if spec.update_strategy.type is UpdateType.ROLLING_UPDATE:
        for name in _updated(spec, staying, snapshot, _Update(newest, desired, now)):
            condemned.setdefault(name, UPDATE)
    for view in views:
        if _reason_has_ended(view, newest) and _may_be_spared(view.pod):
            condemned.setdefault(view.pod.name, "")
    return WorkersPlan(desired, plan.create, condemned)


def daemons_plan(
    spec: NodeSetSpec,
    views: Sequence[WorkerView],
    placement: Placement | None,
    snapshot: SlurmSnapshot,
    *,
    newest: str,
    now: float,
) -> WorkersPlan:
    """Of a NodeSet with a worker on each Kubernetes node. None: these cannot be read, and none is chosen."""
    pods = [view.pod for view in views]
    condemned = _condemned_by_fate(pods)
    if placement is None:
        return WorkersPlan(sum(map(holds_place, pods)), condemned=condemned)
    named = {pod.name for pod in pods}
    wanted = placement.start.keys() | (placement.stay & named)
    for pod in pods:
        if pod.name not in placement.stay and not pod.condemned and not pod.is_ending:
            condemned.setdefault(pod.name, NOT_SELECTED)
    if spec.update_strategy.type is UpdateType.ROLLING_UPDATE:
        staying = [view for view in views if view.pod.name in placement.stay - condemned.keys()]
        for name in _updated(spec, staying, snapshot, _Update(newest, len(wanted), now)):
            condemned.setdefault(name, UPDATE)
    for view in views:
        is_selected = view.pod.condemned == NOT_SELECTED and view.pod.name in placement.stay
        if (is_selected or _reason_has_ended(view, newest)) and _may_be_spared(view.pod):
            condemned.setdefault(view.pod.name, "")
    on_machines = {name: node for name, node in placement.start.items() if name not in named}
    return WorkersPlan(len(wanted), on_machines=on_machines, condemned=condemned)


def _may_be_spared(pod: WorkerPod) -> bool:
    """Without its label the gate has passed."""
    return not pod.is_ending and pod.is_protected


def _condemned_by_fate(pods: Sequence[WorkerPod]) -> dict[str, str]:
    """Whatever the number of workers is."""
    reasons = {}
    for pod in pods:
        if pod.is_ending or pod.condemned:
            continue
        if pod.force_delete:
            reasons[pod.name] = FORCED
        elif pod.machine in PROVEN_OFF:
            reasons[pod.name] = MACHINE_OFF
        elif pod.has_failed:
            reasons[pod.name] = HAS_FAILED
    return reasons


def _reason_has_ended(view: WorkerView, newest: str) -> bool:
    pod = view.pod
    if pod.condemned == UPDATE:
        return not is_outdated(view.revision, view.pod_format, newest)
    if pod.condemned == MACHINE_OFF:
        return pod.machine not in PROVEN_OFF
    return pod.condemned == FORCED and not pod.force_delete


def deletion_plan(views: Sequence[WorkerView]) -> WorkersPlan:
    """Of a NodeSet that is being deleted: all go, through the gate."""
    reasons = {view.pod.name: DELETED for view in views if view.pod.condemned in {"", SCALE_IN}}
    forced = {view.pod.name: FORCED for view in views if view.pod.force_delete and not view.pod.condemned}
    return WorkersPlan(0, condemned=reasons | forced)


def acts_of(
    views: Sequence[WorkerView], snapshot: SlurmSnapshot, drain_timeout_s: int | None, now: float
) -> dict[str, NodeAct]:
    """By the names of pods: the write to its node that is due."""
    return {
        view.pod.name: _after_its_timeout(next_act(view.pod, snapshot), view, snapshot, drain_timeout_s, now)
        for view in views
    }


def is_available(view: WorkerView, snapshot: SlurmSnapshot, min_ready_s: int, now: float) -> bool:
    """Ready for long enough, not to go, and of use to Slurm."""
    return has_been_ready(view, min_ready_s, now) and not why_unusable(view.pod, snapshot)


def has_been_ready(view: WorkerView, min_ready_s: int, now: float) -> bool:
    """By its kubelet, long enough, of a worker that is not to go."""
    pod, since = view.pod, view.ready_since
    is_staying = not pod.is_ending and not pod.condemned and not is_replaced(pod)
    return is_staying and pod.is_ready and (not min_ready_s or now - (since or now) >= min_ready_s)


def why_unusable(pod: WorkerPod, snapshot: SlurmSnapshot) -> str:
    """Why no job can start there; empty: one can, the operator itself has drained it, or Slurm is unknown."""
    if snapshot.unknown:
        return ""
    node = snapshot.nodes.get(pod.name)
    if node is None:
        return "Slurm has no record of the node"
    if identity_of(pod, node) is Identity.ANOTHER:
        return "the node's record belongs to another pod"
    faults = node.state & UNUSABLE
    if drain_owner(node) is not DrainOwner.OPERATOR:
        faults |= node.state & {"DRAIN"}
    return (
        f"the node is {', '.join(sorted(faults))}: {plain_reason(node.reason)}".rstrip(": ") if faults else ""
    )


def is_registering(view: WorkerView, snapshot: SlurmSnapshot, now: float) -> bool:
    """Whether slurmd has just been started, and Slurm may show it as usable at any moment."""
    since = view.ready_since
    is_new = since is not None and now - since <= REGISTERS_WITHIN_S
    return is_new and bool(why_unusable(view.pod, snapshot))


@dataclass(frozen=True, slots=True)
class _Update:
    """To which revision, of how many workers."""

    newest: str
    desired: int
    now: float


def _updated(
    spec: NodeSetSpec, views: Sequence[WorkerView], snapshot: SlurmSnapshot, update: _Update
) -> list[str]:
    """The names of those that are to be replaced next.

    Missing workers count as unavailable. Until one of the new revision is available, only one is replaced:
    so an image that does not start, or that Slurm cannot use, stops the update after one.
    """
    newest, desired = update.newest, update.desired
    outdated = [view for view in views if is_outdated(view.revision, view.pod_format, newest)]
    open_ = [view.pod for view in outdated if not view.pod.condemned and not view.pod.is_ending]
    available = [view for view in views if is_available(view, snapshot, spec.min_ready_seconds, update.now)]
    if snapshot.unknown:  # whether Slurm can use the new ones
        available = [view for view in available if is_outdated(view.revision, view.pod_format, newest)]
    allowed = max_unavailable(spec, desired) - (desired - len(available))
    if not any(not is_outdated(view.revision, view.pod_format, newest) for view in available):
        allowed = min(allowed, 1 - max(desired - len(open_), 0))
    chosen: list[str] = []
    free = {view.pod.name for view in available}
    for pod in removal_order(open_, snapshot):
        if pod.name in free and allowed > 0:
            chosen.append(pod.name)
            allowed -= 1
        elif pod.name not in free and (not pod.was_ready or allowed >= 0):
            chosen.append(pod.name)  # it is missing anyway
    return chosen


def max_unavailable(spec: NodeSetSpec, desired: int) -> int:
    """One at least."""
    rolling = spec.update_strategy.rolling_update
    given = (
        rolling.max_unavailable if rolling and rolling.max_unavailable is not None else DEFAULT_UNAVAILABLE
    )
    text = str(given)
    number = math.floor(desired * int(text[:-1]) / 100) if text.endswith("%") else int(text)
    return max(number, 1)


def _after_its_timeout(
    act: NodeAct, view: WorkerView, snapshot: SlurmSnapshot, timeout_s: int | None, now: float
) -> NodeAct:
    """DOWN, which requeues its jobs, for a worker that has waited for them as long as its NodeSet allows."""
    node, since = snapshot.nodes.get(view.pod.name), view.condemned_at
    is_due = timeout_s is not None and since is not None and now - since >= timeout_s
    if not is_due or snapshot.unknown or node is None or act.verb is not None or not view.pod.condemned:
        return act
    if view.pod.is_ending or "DOWN" in node.state or not snapshot.jobs_on(view.pod.name):
        return act
    if identity_of(view.pod, node) is Identity.ANOTHER:
        return act
    return NodeAct(NodeVerb.DOWN, our_reason(f"{view.pod.condemned}, and drainTimeout is over"))
