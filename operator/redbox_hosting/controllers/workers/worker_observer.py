"""The snapshot of a NodeSet's world: pods and machines by watches, Slurm, and what is due."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from time import monotonic

from redbox_hosting.api import names
from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.build.pods.worker import ROLE, WorkerPlan, grace_seconds, worker_pod
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.workers.acts.node_writes import NodeWrites
from redbox_hosting.controllers.workers.acts.worker_creation import grace_of
from redbox_hosting.controllers.workers.plans import (
    UPDATE,
    acts_of,
    deletion_plan,
    has_been_ready,
    with_machine,
    workers_plan,
)
from redbox_hosting.controllers.workers.revisions import revision_of
from redbox_hosting.controllers.workers.worker_releases import check_not_newer, of_the_release
from redbox_hosting.controllers.workers.worker_views import WorkerView, is_silent, machine_of, read_worker
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_hosting.nodeset.drains import DrainOwner, drain_owner
from redbox_hosting.nodeset.gate import gate
from redbox_hosting.nodeset.observed import WorkerMachine
from redbox_hosting.nodeset.records import RecordDecision, record_decision
from redbox_hosting.nodeset.scaling import SCALE_IN, with_deadlines
from redbox_hosting.slurm.snapshot import SlurmSnapshot
from redbox_kube.api import kinds
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.controller.controller import Watch
from redbox_kube.controller.owned import OwnedObjects
from redbox_kube.controller.steps import StepFailed
from redbox_kube.controller.watched import WatchedKind

LOOK_AGAIN_S = 5.0
FRESH_S = 3.0
CHOSEN_BY_SLURM = frozenset({SCALE_IN, UPDATE})
"""Reasons of workers that others could go instead of; the other reasons do not wait for a newer snapshot."""


class WorkerObserver:
    """Observes NodeSets for their controller, which adds `watches` to its own."""

    def __init__(self, context: HostingContext, owned: OwnedObjects, writes: NodeWrites) -> None:
        self._context = context
        self._objects = context.writer.objects
        self._owned = owned
        self._writes = writes
        self._pods: WatchedKind[WorkerView] = WatchedKind(
            self._objects,
            kinds.POD,
            namespaces=context.namespaces,
            selection={"labelSelector": f"{names.LABEL_ROLE}={ROLE}"},
            reduced=read_worker,
        )
        self._machines: WatchedKind[Object] = WatchedKind(self._objects, kinds.NODE, reduced=_reduced_node)

    @property
    def watches(self) -> list[Watch]:
        """Nodes only where they may be read."""
        machines = [(self._machines, self._node_sets_on)] if self._context.reads_nodes else []
        return [(self._pods, _node_set_of), *machines]

    async def observe(self, node_set: NodeSet) -> WorkerWorld:
        now = self._context.clock().timestamp()
        place = (node_set.namespace, node_set.spec.controller_ref.name)
        snapshot = self._context.snapshots.of(place)
        workers = await self._workers(node_set, snapshot, now)
        cell, why_no_cell, grace_s = self._cell(node_set)
        workers = tuple(of_the_release(view, node_set, cell) for view in workers)
        newest = revision_of(node_set)
        if node_set.being_deleted:
            plan = deletion_plan(workers)
        else:
            before = node_set.status.desired
            plan = workers_plan(node_set.spec, workers, snapshot, newest, now, before=before)
        if cell is None:  # no worker goes whose successor could not be made
            plan = replace(plan, condemned={n: why for n, why in plan.condemned.items() if why != UPDATE})
        is_old = not snapshot.unknown and monotonic() - snapshot.read_at > FRESH_S
        lasting = {name: reason for name, reason in plan.condemned.items() if reason not in CHOSEN_BY_SLURM}
        is_stale = is_old and lasting != plan.condemned
        if is_stale:  # which workers are idle is looked at again before any is chosen
            plan = replace(plan, condemned=lasting)
            self._context.snapshots.hurry(place)
        world = WorkerWorld(
            node_set=node_set,
            cell=cell,
            why_no_cell=why_no_cell,
            grace_s=grace_s,
            workers=workers,
            revisions=self._owned.of(node_set, kinds.CONTROLLER_REVISION),
            newest=newest,
            snapshot=snapshot,
            plan=plan,
            acts=acts_of(workers, snapshot, node_set.spec.redbox.drain_timeout, now),
            gates={
                view.pod.name: gate(view.pod, snapshot)
                for view in workers
                if view.pod.condemned and not view.pod.is_ending
            },
            evictable=frozenset(
                view.pod.name
                for view in workers
                if view.pod.machine is WorkerMachine.CORDONED
                and not view.pod.condemned
                and not view.pod.is_ending
                and gate(view.pod, snapshot).is_open
            ),
            records=self.records(node_set, snapshot),
            is_stale=is_stale,
            now=now,
        )
        self._context.snapshots.look_at(place, node_set.uid, awaits=world.awaits)
        return world

    def _cell(self, node_set: NodeSet) -> tuple[SlurmCell | None, str, int]:
        try:
            controller = self._context.controller_of(node_set.namespace, node_set.spec.controller_ref.name)
            cell = self._context.running_cell_of(controller)
            check_not_newer(node_set, cell)
            worker_pod(cell, WorkerPlan(node_set, 0, ""))
            return cell, "", grace_of(controller.spec, node_set)
        except StepFailed as error:
            return None, str(error), grace_seconds(None, None)

    async def _workers(
        self, node_set: NodeSet, snapshot: SlurmSnapshot, now: float
    ) -> tuple[WorkerView, ...]:
        found = []
        for (namespace, _), view in self._pods.items():
            if namespace == node_set.namespace and view.owner == node_set.uid:
                machine, reason = await self._machine(view, now)
                protects = node_set.spec.workload_disruption_protection
                pod = replace(
                    view.pod,
                    drain_confirmed=self._writes.confirmed(view.pod.uid),
                    is_exposed=protects and not view.pod.is_protected,
                )
                found.append(with_machine(replace(view, pod=pod), machine, reason))
        pods = with_deadlines([view.pod for view in found], snapshot)
        views = [replace(view, pod=pod) for view, pod in zip(found, pods, strict=True)]
        return tuple(sorted(views, key=lambda view: view.pod.ordinal))

    async def _machine(self, view: WorkerView, now: float) -> tuple[WorkerMachine, str]:
        """A Node that the watch does not show is looked for: the pod's watch may be ahead."""
        if not self._context.reads_nodes:
            return WorkerMachine.UNREADABLE, ""
        if not view.machine_name:
            return WorkerMachine.WELL, ""
        node = self._machines.get(("", view.machine_name))
        if node is None:
            node = await self._objects.get(ResourcePath(kinds.NODE, view.machine_name))
        return machine_of(node, now)

    async def live_machine(self, view: WorkerView) -> WorkerMachine:
        if not self._context.reads_nodes or not view.machine_name:
            return WorkerMachine.UNREADABLE
        node = await self._objects.get(ResourcePath(kinds.NODE, view.machine_name))
        return machine_of(node, self._context.clock().timestamp())[0]

    def records(self, node_set: NodeSet, snapshot: SlurmSnapshot) -> dict[str, RecordDecision]:
        """Of nodes that a worker of this NodeSet had, by their names and by who took them out of service."""
        pods = {name for (namespace, name), _ in self._pods.items() if namespace == node_set.namespace}
        ours = {DrainOwner.OPERATOR, DrainOwner.SLURM}
        return {
            name: record_decision(name, pods, snapshot)
            for name, node in snapshot.nodes.items()
            if name not in pods and _is_name_of(node_set, name) and drain_owner(node) in ours
        }

    def holds_workers(self, namespace: str) -> bool:
        return any(place[0] == namespace for place, _ in self._pods.items())

    def again_in_s(self, world: WorkerWorld) -> float | None:
        """When time alone changes something."""
        spec, machines = world.node_set.spec, {view.machine_name for view in world.workers}
        nodes = [self._machines.get(("", name)) for name in machines if self._context.reads_nodes]
        is_due = any(node is not None and is_silent(node) for node in nodes)
        is_due = is_due or any(
            view.pod.is_ready
            and not view.pod.condemned
            and not has_been_ready(view, spec.min_ready_seconds, world.now)
            for view in world.workers
        )
        is_due = is_due or (spec.redbox.drain_timeout is not None and bool(world.gates))
        return LOOK_AGAIN_S if is_due else None

    def _node_sets_on(self, place: Place, _: object) -> Iterable[Place]:
        return {
            (namespace, view.node_set)
            for (namespace, _), view in self._pods.items()
            if view.machine_name == place[1]
        }


def _node_set_of(place: Place, view: WorkerView) -> Sequence[Place]:
    return [(place[0], view.node_set)] if view.node_set else []


def _is_name_of(node_set: NodeSet, node: str) -> bool:
    """Whether a worker of this NodeSet may have this name."""
    digits = node.removeprefix(node_set.node_prefix).removeprefix("-")
    if not digits.isascii() or not digits.isdigit():
        return False
    return names.node_name(node_set.node_prefix, int(digits), node_set.spec.ordinal_padding) == node


def _reduced_node(body: Object) -> Object:
    """Only what `machine_of` reads, so that a kubelet's heartbeat is no change of it."""
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    annotations = metadata.get("annotations") or {}
    ready = [
        {key: each.get(key) for key in ("type", "status", "lastTransitionTime")}
        for each in status.get("conditions") or []
        if each["type"] == "Ready"
    ]
    return {
        "metadata": {
            "name": metadata["name"],
            "annotations": {
                key: annotations[key] for key in (names.ANNOTATION_NODE_CORDON_REASON,) if key in annotations
            },
        },
        "spec": {"taints": spec.get("taints") or [], "unschedulable": bool(spec.get("unschedulable"))},
        "status": {"conditions": ready},
    }
