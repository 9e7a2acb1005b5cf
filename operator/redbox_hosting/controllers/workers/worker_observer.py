"""The snapshot of a NodeSet's world: pods and machines by watches, Slurm, and what is due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.api.nodeset import NodeSet, RecordPruning
from redbox_hosting.build.pods.parts import Manifest, SlurmCell
from redbox_hosting.build.pods.worker import ROLE, WorkerPlan, grace_seconds, worker_pod
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.workers.acts.node_writes import NodeWrites
from redbox_hosting.controllers.workers.acts.worker_creation import grace_of
from redbox_hosting.controllers.workers.plans import (
    UPDATE,
    acts_of,
    daemons_plan,
    deletion_plan,
    has_been_ready,
    is_daemon_set,
    workers_plan,
)
from redbox_hosting.controllers.workers.revisions import homes_of, revision_of
from redbox_hosting.controllers.workers.worker_releases import check_not_newer, of_the_release
from redbox_hosting.controllers.workers.worker_views import WorkerView, is_silent, machine_of, read_worker
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_hosting.nodeset.drains import DrainOwner, drain_owner
from redbox_hosting.nodeset.gate import gate
from redbox_hosting.nodeset.observed import WorkerMachine
from redbox_hosting.nodeset.placement import Placement, placement
from redbox_hosting.nodeset.records import RecordDecision, record_decision
from redbox_hosting.nodeset.scaling import SCALE_IN, deadline_of
from redbox_hosting.slurm.answers import RestNode
from redbox_hosting.slurm.snapshot import SlurmSnapshot
from redbox_kube.api import kinds
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.controller.controller import Controller, Watch
from redbox_kube.controller.owned import OwnedObjects
from redbox_kube.controller.steps import StepFailed
from redbox_kube.controller.watched import WatchedKind

LOOK_AGAIN_S = 5.0
FRESH_S = 3.0
CHOSEN_BY_SLURM = frozenset({SCALE_IN, UPDATE})
"""Reasons of workers that others could go instead of; the other reasons do not wait for a newer snapshot."""


_Joined = tuple[WorkerView, dict[str, Any], WorkerView]
"""A worker as its watch shows it, what else is read of it, and both together."""


@dataclass(frozen=True, slots=True)
class _Design:
    """How the next worker would be made."""

    cell: SlurmCell | None
    why_no_cell: str
    grace_s: int
    pod: Manifest
    """The spec of any worker; empty without a cell."""
    revision: str
    homes: str
    """The claim of its Controller."""


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
        self._faults = context.node_conditions
        reduced = partial(_reduced_node, faults=self._faults)
        self._machines: WatchedKind[Object] = WatchedKind(self._objects, kinds.NODE, reduced=reduced)
        self._designs: dict[str, tuple[SlurmController | None, NodeSet, _Design]] = {}
        """By the uids of NodeSets, with what each was made of."""
        self._joined: dict[str, dict[str, _Joined]] = {}
        """By the uids of NodeSets and of pods."""

    @property
    def watches(self) -> list[Watch]:
        return [(self._pods, _node_set_of)]

    def follow_machines(self, controller: Controller[NodeSet, WorkerWorld]) -> None:
        """Only where Nodes may be read. A kubelet's heartbeat changes nothing that is looked at."""
        if self._context.reads_nodes:
            self._machines.follow(controller.queue.add, self._node_sets_on, input_of=lambda node: node)
            controller.watched.append(self._machines)

    async def observe(self, node_set: NodeSet) -> WorkerWorld:
        now = self._context.clock().timestamp()
        place = (node_set.namespace, node_set.spec.controller_ref.name)
        snapshot = self._context.snapshots.of(place)
        workers = await self._workers(node_set, snapshot, now)
        design = self._design(node_set)
        workers = tuple(of_the_release(view, node_set, design.cell) for view in workers)
        placed = self._placement(node_set, design)
        if node_set.being_deleted:
            plan = deletion_plan(workers)
        elif is_daemon_set(node_set.spec):
            newest = design.revision
            plan = daemons_plan(node_set.spec, workers, placed, snapshot, newest=newest, now=now)
        else:
            before = node_set.status.desired
            plan = workers_plan(node_set.spec, workers, snapshot, design.revision, now, before=before)
        if design.cell is None:  # no worker goes whose successor could not be made
            plan = replace(plan, condemned={n: why for n, why in plan.condemned.items() if why != UPDATE})
        is_old = not snapshot.unknown and monotonic() - snapshot.read_at > FRESH_S
        lasting = {name: reason for name, reason in plan.condemned.items() if reason not in CHOSEN_BY_SLURM}
        is_stale = is_old and lasting != plan.condemned
        if is_stale:  # which workers are idle is looked at again before any is chosen
            plan = replace(plan, condemned=lasting)
            self._context.snapshots.hurry(place)
        world = WorkerWorld(
            node_set=node_set,
            cell=design.cell,
            why_no_cell=design.why_no_cell,
            grace_s=design.grace_s,
            workers=workers,
            revisions=self._owned.of(node_set, kinds.CONTROLLER_REVISION),
            newest=design.revision,
            homes=design.homes,
            snapshot=snapshot,
            plan=plan,
            placement=placed,
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
            records=self.records(node_set, snapshot, placed),
            is_stale=is_stale,
            now=now,
        )
        self._context.snapshots.look_at(place, node_set.uid, awaits=world.awaits)
        return world

    def _design(self, node_set: NodeSet) -> _Design:
        """Made again when the NodeSet or its Controller has changed."""
        place = (node_set.namespace, node_set.spec.controller_ref.name)
        controller = self._context.watches.controllers.get(place)
        last = self._designs.get(node_set.uid)
        if last is None or last[0] is not controller or last[1] is not node_set:
            made = self._new_design(node_set, homes_of(controller))
            last = self._designs[node_set.uid] = controller, node_set, made
        return last[2]

    def forget(self, node_set: NodeSet) -> None:
        """It is gone."""
        self._designs.pop(node_set.uid, None)
        self._joined.pop(node_set.uid, None)

    def _new_design(self, node_set: NodeSet, homes: str) -> _Design:
        newest = revision_of(node_set, homes)
        try:
            controller = self._context.controller_of(node_set.namespace, node_set.spec.controller_ref.name)
            cell = self._context.running_cell_of(controller)
            check_not_newer(node_set, cell)
            pod = worker_pod(cell, WorkerPlan(node_set, 0, ""))["spec"]
            return _Design(cell, "", grace_of(controller.spec, node_set), pod, newest, homes)
        except StepFailed as error:
            return _Design(None, str(error), grace_seconds(None, None), {}, newest, homes)

    def _placement(self, node_set: NodeSet, design: _Design) -> Placement | None:
        """None: it has no worker on each Kubernetes node, or nobody can tell on which it is to have one."""
        is_readable = self._context.reads_nodes and design.cell is not None
        if not is_readable or not is_daemon_set(node_set.spec):
            return None
        return placement(design.pod, (node for _, node in self._machines.items()))

    async def _workers(
        self, node_set: NodeSet, snapshot: SlurmSnapshot, now: float
    ) -> tuple[WorkerView, ...]:
        """A worker in which nothing has changed is the same object: copies take longer than all else."""
        before, joined = self._joined.get(node_set.uid, {}), dict[str, _Joined]()
        protects = node_set.spec.workload_disruption_protection
        for _, view in self._pods.items_in(node_set.namespace):
            if view.owner != node_set.uid:
                continue
            pod = view.pod
            machine, reason = await self._machine(view, now)
            facts: dict[str, Any] = {
                "drain_confirmed": self._writes.confirmed(pod.uid),
                "is_exposed": protects and not pod.is_protected,
                "machine": machine,
                "machine_reason": reason,
                "deadline": deadline_of(pod, snapshot),
            }
            last = before.get(pod.uid)
            if last is None or last[0] is not view or last[1] != facts:
                last = view, facts, replace(view, pod=replace(pod, **facts))
            joined[pod.uid] = last
        self._joined[node_set.uid] = joined
        return tuple(
            sorted((view for *_, view in joined.values()), key=lambda view: (view.pod.ordinal, view.pod.name))
        )

    async def _machine(self, view: WorkerView, now: float) -> tuple[WorkerMachine, str]:
        """A Node that the watch does not show is looked for: the pod's watch may be ahead."""
        if not self._context.reads_nodes:
            return WorkerMachine.UNREADABLE, ""
        if not view.machine_name:
            return WorkerMachine.WELL, ""
        node = self._machines.get(("", view.machine_name))
        if node is None:
            node = await self._objects.get(ResourcePath(kinds.NODE, view.machine_name))
        return machine_of(node, now, self._faults)

    async def live_machine(self, view: WorkerView) -> WorkerMachine:
        if not self._context.reads_nodes or not view.machine_name:
            return WorkerMachine.UNREADABLE
        node = await self._objects.get(ResourcePath(kinds.NODE, view.machine_name))
        return machine_of(node, self._context.clock().timestamp())[0]

    def records(
        self, node_set: NodeSet, snapshot: SlurmSnapshot, placed: Placement | None
    ) -> dict[str, RecordDecision]:
        """Of nodes that a worker of this NodeSet had, by their names and by who took them out of service."""
        pods = {name for (_, name), _ in self._pods.items_in(node_set.namespace)}
        ours = {DrainOwner.OPERATOR, DrainOwner.SLURM}
        is_former = self._of_a_machine(node_set, placed) if is_daemon_set(node_set.spec) else _never
        return {
            name: record_decision(name, pods, snapshot)
            for name, node in snapshot.nodes.items()
            if name not in pods
            and (_is_name_of(node_set, name) or is_former(node))
            and drain_owner(node) in ours
        }

    def _of_a_machine(self, node_set: NodeSet, placed: Placement | None) -> Callable[[RestNode], bool]:
        """Of a worker on each Kubernetes node the record is kept, unless it is to be made again or pruned."""
        again = placed.start if placed is not None else {}
        prunes = node_set.spec.prune_slurm_node_records is RecordPruning.NODE_NOT_FOUND
        machines = {names.short_name(name) for (_, name), _ in self._machines.items()}

        def is_former(node: RestNode) -> bool:
            is_pruned = prunes and placed is not None and node.name not in machines
            goes = node_set.being_deleted or is_pruned or node.name in again
            return goes and node_set.name in node.features

        return is_former

    def holds_workers(self, namespace: str) -> bool:
        return any(True for _ in self._pods.items_in(namespace))

    def nodes_of_workers(self) -> Iterator[RestNode]:
        """As the newest snapshots have them; none of a Slurm that is unknown."""
        for (namespace, name), view in self._pods.items():
            node_set = self._context.watches.node_sets.get((namespace, view.node_set))
            if node_set is not None:
                place = (namespace, node_set.spec.controller_ref.name)
                if node := self._context.snapshots.of(place).nodes.get(name):
                    yield node

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
        """Those with workers there, and those that have one on each Kubernetes node."""
        found = {
            (namespace, view.node_set)
            for (namespace, _), view in self._pods.items()
            if view.machine_name == place[1]
        }
        everywhere = self._context.watches.node_sets.items()
        return found | {own for own, node_set in everywhere if is_daemon_set(node_set.spec)}


def _never(_: RestNode) -> bool:
    return False


def _node_set_of(place: Place, view: WorkerView) -> Sequence[Place]:
    return [(place[0], view.node_set)] if view.node_set else []


def _is_name_of(node_set: NodeSet, node: str) -> bool:
    """Whether a worker of this NodeSet may have this name."""
    digits = node.removeprefix(node_set.node_prefix).removeprefix("-")
    if not digits.isascii() or not digits.isdigit():
        return False
    return names.node_name(node_set.node_prefix, int(digits), node_set.spec.ordinal_padding) == node


def _reduced_node(body: Object, faults: Collection[str]) -> Object:
    """Only what `machine_of` reads, so that a kubelet's heartbeat is no change of it."""
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    annotations = metadata.get("annotations") or {}
    parts: dict[str, tuple[str, ...]] = {"Ready": ("type", "status", "lastTransitionTime")}
    parts |= dict.fromkeys(faults, ("type", "status", "reason", "message"))
    conditions = [
        {key: each.get(key) for key in parts[each["type"]]}
        for each in status.get("conditions") or []
        if each["type"] in parts
    ]
    return {
        "metadata": {
            "name": metadata["name"],
            "labels": metadata.get("labels") or {},
            "annotations": {
                key: annotations[key] for key in (names.ANNOTATION_NODE_CORDON_REASON,) if key in annotations
            },
        },
        "spec": {"taints": spec.get("taints") or [], "unschedulable": bool(spec.get("unschedulable"))},
        "status": {"conditions": conditions},
    }
