"""NodeSets: as many workers as wanted, each a pod that the operator makes, and a node of Slurm.

Creation never needs Slurm. A worker goes in four steps, each of which may be the last one of this operator
and the first one of the next: the annotation `condemned`, DRAIN in Slurm, the gate, the deletion.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from redbox_hosting.api import names
from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.build.pods.worker import ROLE, WorkerPlan, grace_seconds
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.workers.lost_jobs import LostJobs
from redbox_hosting.controllers.workers.node_set_status import NAMESPACE_FENCE, status_of
from redbox_hosting.controllers.workers.node_writes import NodeWrites, delete_records
from redbox_hosting.controllers.workers.plans import (
    after_its_timeout,
    deletion_plan,
    is_available,
    with_machine,
    workers_plan,
)
from redbox_hosting.controllers.workers.pod_conditions import UNKNOWN, wanted_condition
from redbox_hosting.controllers.workers.removal import WorkerRemoval
from redbox_hosting.controllers.workers.revisions import revision_object, revision_of, surplus_revisions
from redbox_hosting.controllers.workers.worker_creation import WorkerCreation, grace_of
from redbox_hosting.controllers.workers.worker_views import WorkerView, is_silent, machine_of, read_worker
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_hosting.nodeset.drains import DrainOwner, drain_owner
from redbox_hosting.nodeset.gate import gate
from redbox_hosting.nodeset.observed import WorkerMachine
from redbox_hosting.nodeset.records import RecordDecision, record_decision
from redbox_hosting.nodeset.scaling import with_deadlines
from redbox_hosting.nodeset.wanted import next_act
from redbox_hosting.slurm.snapshot import SlurmSnapshot
from redbox_kube.api import kinds
from redbox_kube.api.events import NORMAL, WARNING, Event
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.finalizer import Finalizer
from redbox_kube.controller.owned import OwnedObjects
from redbox_kube.controller.status_reporter import StatusReporter
from redbox_kube.controller.steps import ReconcileStep, StepFailed, StepOutcome
from redbox_kube.controller.watched import WatchedKind

LOOK_AGAIN_S = 5.0
FIRST_BATCH = 1
"""Of pods that are created in parallel; each batch that succeeds doubles the next one."""


@dataclass
class NodeSets:
    """The controller of NodeSets."""

    context: HostingContext
    _writes: NodeWrites = field(default_factory=NodeWrites)
    _fenced: dict[str, bool] = field(default_factory=dict)
    """Whether the namespaces were seen to have the label."""
    _budgets: set[Place] = field(default_factory=set)
    """Controllers whose budget was seen."""

    def __post_init__(self) -> None:
        context, objects = self.context, self.context.writer.objects
        self._snapshots = context.snapshots
        self._lost_jobs = LostJobs()
        self._pods: WatchedKind[WorkerView] = WatchedKind(
            objects,
            kinds.POD,
            namespaces=context.namespaces,
            selection={"labelSelector": f"{names.LABEL_ROLE}={ROLE}"},
            reduced=read_worker,
        )
        self._machines: WatchedKind[Object] = WatchedKind(objects, kinds.NODE, reduced=_reduced_node)
        self._owned = OwnedObjects(
            context.writer, names.NODE_SETS, [kinds.CONTROLLER_REVISION], namespaces=context.namespaces
        )
        self._creation = WorkerCreation(context.writer)
        finalizer = Finalizer(context.writer, names.NODE_SETS, names.FINALIZER_WORKERS)
        going = [
            ReconcileStep("Condemned", self._mark),
            ReconcileStep("Nodes", self._write_nodes),
            ReconcileStep("Removal", self._remove),
            ReconcileStep("Records", self._delete_records),
            ReconcileStep("PodConditions", self._show),
        ]
        how = Reconciliation[NodeSet, WorkerWorld](
            self._observe,
            [
                ReconcileStep("Finalizer", lambda world: finalizer.add(world.node_set)),
                ReconcileStep("Revision", self._keep_revisions),
                ReconcileStep(NAMESPACE_FENCE, self._fence_namespace),
                ReconcileStep("Workers", self._create, needs=("Finalizer", "Revision")),
                *going,
            ],
            deletion=[
                *going,
                ReconcileStep("Gone", self._await_gone),
                ReconcileStep("Finalizer", partial(self._lift, finalizer), needs=("Gone",)),
            ],
            report=StatusReporter(context.writer, names.NODE_SETS, status_of, clock=context.clock),
        )
        self.controller = Controller(
            "nodesets",
            context.watches.node_sets,
            how,
            context.metrics,
            watches=[
                *self._owned.watches,
                (self._pods, _node_set_of),
                (context.watches.controllers, self._node_sets_of),
                *([(self._machines, self._node_sets_on)] if context.reads_nodes else []),
            ],
            serves=context.leases.may_write,
        )
        self._snapshots.follow(self._slurm_changed)

    # ---------------------------------------------------------------------------------------- the snapshot
    async def _observe(self, node_set: NodeSet) -> WorkerWorld:
        now = self.context.clock().timestamp()
        place = (node_set.namespace, node_set.spec.controller_ref.name)
        snapshot = self._snapshots.of(place)
        workers = await self._workers(node_set, snapshot, now)
        cell, why_no_cell, grace_s = self._cell(node_set)
        newest = revision_of(node_set)
        if node_set.being_deleted:
            plan = deletion_plan(workers)
        else:
            plan = workers_plan(node_set.spec, workers, snapshot, newest, now)
        timeout_s = node_set.spec.redbox.drain_timeout
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
            acts={
                view.pod.name: after_its_timeout(next_act(view.pod, snapshot), view, snapshot, timeout_s, now)
                for view in workers
            },
            gates={
                view.pod.name: gate(view.pod, snapshot)
                for view in workers
                if view.pod.condemned and not view.pod.is_ending
            },
            records=self._records(node_set, snapshot),
            now=now,
        )
        self._snapshots.look_at(place, node_set.uid, awaits=world.awaits)
        return world

    def _cell(self, node_set: NodeSet) -> tuple[SlurmCell | None, str, int]:
        try:
            controller = self.context.controller_of(node_set.namespace, node_set.spec.controller_ref.name)
            return self.context.cell_of(controller), "", grace_of(controller.spec, node_set)
        except StepFailed as error:
            return None, str(error), grace_seconds(None, None)

    async def _workers(
        self, node_set: NodeSet, snapshot: SlurmSnapshot, now: float
    ) -> tuple[WorkerView, ...]:
        found = []
        for (namespace, _), view in self._pods.items():
            if namespace == node_set.namespace and view.owner == node_set.uid:
                machine, reason = await self._machine(view, now)
                pod = replace(view.pod, drain_confirmed=self._writes.confirmed(view.pod.uid))
                found.append(with_machine(replace(view, pod=pod), machine, reason))
        pods = with_deadlines([view.pod for view in found], snapshot)
        views = [replace(view, pod=pod) for view, pod in zip(found, pods, strict=True)]
        return tuple(sorted(views, key=lambda view: view.pod.ordinal))

    async def _machine(self, view: WorkerView, now: float) -> tuple[WorkerMachine, str]:
        """A Node that the watch does not show is looked for: the pod's watch may be ahead."""
        if not self.context.reads_nodes:
            return WorkerMachine.UNREADABLE, ""
        if not view.machine_name:
            return WorkerMachine.WELL, ""
        node = self._machines.get(("", view.machine_name))
        if node is None:
            node = await self.context.writer.objects.get(ResourcePath(kinds.NODE, view.machine_name))
        return machine_of(node, now)

    async def _live_machine(self, view: WorkerView) -> WorkerMachine:
        if not self.context.reads_nodes or not view.machine_name:
            return WorkerMachine.UNREADABLE
        node = await self.context.writer.objects.get(ResourcePath(kinds.NODE, view.machine_name))
        return machine_of(node, self.context.clock().timestamp())[0]

    def _records(self, node_set: NodeSet, snapshot: SlurmSnapshot) -> dict[str, RecordDecision]:
        """Of nodes that a worker of this NodeSet had, by their names and by who took them out of service."""
        pods = {name for (namespace, name), _ in self._pods.items() if namespace == node_set.namespace}
        ours = {DrainOwner.OPERATOR, DrainOwner.SLURM}
        return {
            name: record_decision(name, pods, snapshot)
            for name, node in snapshot.nodes.items()
            if name not in pods and _is_name_of(node_set, name) and drain_owner(node) in ours
        }

    # ---------------------------------------------------------------------------------------- the steps
    async def _keep_revisions(self, world: WorkerWorld) -> StepOutcome:
        wanted = revision_object(world.node_set, world.revisions.values())
        did = ""
        if wanted.name not in world.revisions:
            await self._owned.create(world.node_set, wanted)
            did = f"revision {world.newest}"
        in_use = {view.revision for view in world.workers}
        for body in surplus_revisions(world.node_set, world.revisions, in_use):
            metadata = body["metadata"]
            where = ResourcePath(kinds.CONTROLLER_REVISION, metadata["name"], world.node_set.namespace)
            await self.context.writer.delete(where, metadata["uid"])
        return StepOutcome(did=did)

    async def _fence_namespace(self, world: WorkerWorld) -> StepOutcome:
        """The label by which the deletion of a namespace with workers is refused."""
        namespace = world.node_set.namespace
        holds = bool(world.workers or world.plan.create) or any(
            place[0] == namespace for place, _ in self._pods.items()
        )
        if self._fenced.get(namespace) == holds:
            return StepOutcome()
        labels = {names.LABEL_HOLDS_WORKERS: "true" if holds else None}
        where = ResourcePath(kinds.NAMESPACE, namespace)
        try:
            await self.context.writer.objects.merge(where, {"metadata": {"labels": labels}})
        except ApiRefused as error:
            raise StepFailed(
                f"the namespace cannot be labelled, so its deletion ends all but its workers: {error}"
            ) from error
        self.context.writer.count(kinds.NAMESPACE.name, "patch")
        self._fenced[namespace] = holds
        return StepOutcome()

    async def _create(self, world: WorkerWorld) -> StepOutcome:
        """In batches that double, so that what fails for all fails once."""
        if not world.plan.create:
            return StepOutcome()
        if world.cell is None:
            raise StepFailed(world.why_no_cell)
        await self._check_budget(world)
        plans = [
            WorkerPlan(world.node_set, ordinal, world.newest, world.grace_s) for ordinal in world.plan.create
        ]
        # A former worker's record may have another size: it goes first, if Slurm answers.
        blocked = {name for name, decision in world.records.items() if decision.delete}
        waiting = [plan.name for plan in plans if plan.name in blocked]
        plans = [plan for plan in plans if plan.name not in blocked]
        created: list[str] = []
        size = FIRST_BATCH
        while plans:
            batch, plans = plans[:size], plans[size:]
            size *= 2
            answers = await asyncio.gather(
                *(self._creation.create(world.cell, plan) for plan in batch), return_exceptions=True
            )
            created += [plan.name for plan, answer in zip(batch, answers, strict=True) if answer is True]
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
        waits = f"the records of former nodes {', '.join(waiting)} to go" if waiting else ""
        return StepOutcome(did=f"created {', '.join(created)}" if created else "", waits_for=waits)

    async def _check_budget(self, world: WorkerWorld) -> None:
        """A pod that is evicted before there is a budget dies with its jobs."""
        if world.controller in self._budgets:
            return
        name = names.workers_name(world.controller[1])
        where = ResourcePath(kinds.POD_DISRUPTION_BUDGET, name, world.node_set.namespace)
        if await self.context.writer.objects.get(where) is None:
            raise StepFailed(f"the PodDisruptionBudget {name} of the Controller is not there yet")
        self._budgets.add(world.controller)

    async def _mark(self, world: WorkerWorld) -> StepOutcome:
        """The annotation `condemned`: set, or taken from workers that stay after all."""
        done = []
        at = self.context.clock().isoformat()
        protects = world.node_set.spec.workload_disruption_protection
        for view in world.workers:
            name, decision = view.pod.name, world.gates.get(view.pod.name)
            reason = world.plan.condemned.get(name)
            changes: Object = {}
            if reason is not None:
                given = {
                    names.ANNOTATION_CONDEMNED: reason or None,
                    names.ANNOTATION_CONDEMNED_AT: at if reason else None,
                }
                changes["annotations"] = given
            is_open = decision is not None and decision.is_open
            if protects and not view.pod.is_protected and not view.pod.is_ending and not is_open:
                changes["labels"] = {
                    names.LABEL_PROTECTED: "true"
                }  # a deletion that was begun, and is not due
            if not changes:
                continue
            where = ResourcePath(kinds.POD, name, world.node_set.namespace)
            metadata = {"metadata": {**changes, "uid": view.pod.uid}}
            await self.context.writer.objects.merge(where, metadata)
            self.context.writer.count(kinds.POD.name, "patch")
            if reason is not None:
                done.append(f"{name} {f'is to go: {reason}' if reason else 'stays'}")
        return StepOutcome(did=", ".join(done))

    async def _write_nodes(self, world: WorkerWorld) -> StepOutcome:
        if not any(act.verb is not None for act in world.acts.values()):
            return StepOutcome()
        client = self.context.slurm_of(*world.controller)
        done, failed = await self._writes.write(client, world.workers, world.acts)
        if done:
            self._snapshots.hurry(world.controller)
        if failed:
            raise StepFailed("; ".join(failed[:3]))
        return StepOutcome(did=", ".join(done))

    async def _remove(self, world: WorkerWorld) -> StepOutcome:
        candidates = [
            view
            for view in world.workers
            if (decision := world.gates.get(view.pod.name)) is not None and decision.is_open
        ]
        if not candidates:
            return StepOutcome()
        removal = WorkerRemoval(
            self.context.writer, self._snapshots, self._live_machine, self._writes.confirmed
        )
        removals = await removal.remove(world.node_set.namespace, world.controller, candidates)
        if errors := [f"{each.name}: {each.error}" for each in removals if each.error]:
            raise StepFailed("; ".join(errors[:3]))
        return StepOutcome(did=", ".join(f"deleted {each.name}: {each.decision.reason}" for each in removals))

    async def _delete_records(self, world: WorkerWorld) -> StepOutcome:
        due = [name for name, decision in world.records.items() if decision.delete]
        if not due:
            return StepOutcome()
        done, failed = await delete_records(self.context.slurm_of(*world.controller), due)
        if done:
            self._snapshots.hurry(world.controller)
        if failed:
            raise StepFailed("; ".join(failed[:3]))
        return StepOutcome()

    async def _show(self, world: WorkerWorld) -> StepOutcome:
        """Conditions and events of pods, and the jobs that were lost."""
        again_in_s = self._again_in_s(world)
        for view in world.workers:
            wanted = wanted_condition(view, world)
            if wanted is None or wanted == view.condition:
                continue
            where = ResourcePath(kinds.POD, view.pod.name, world.node_set.namespace)
            has_changed = view.condition is None or view.condition.status != wanted.status
            condition: Object = {
                "type": names.CONDITION_DRAINING,
                "status": wanted.status,
                "reason": wanted.reason,
                "message": wanted.message[:1024],
                **({"lastTransitionTime": _rfc3339(world.now)} if has_changed else {}),
            }
            try:
                await self.context.writer.objects.apply(
                    where,
                    {"metadata": {"uid": view.pod.uid}, "status": {"conditions": [condition]}},
                    subresource="status",
                )
            except ApiRefused:
                continue  # it is gone
            self.context.writer.count("Pod/status", "apply")
            reason = "NodeInService" if wanted.status == "False" else "NodeDraining"
            severity = WARNING if wanted.status == UNKNOWN else NORMAL
            await self._event(where, view.pod.uid, severity, reason, wanted.message or "the node takes jobs")
        for view, jobs in self._lost_jobs.found(world):
            words = f"{view.pod.name} ended with jobs on it: {', '.join(map(str, jobs))}"
            about = world.node_set.path(names.NODE_SETS)
            await self._event(about, world.node_set.uid, WARNING, "JobsLost", words)
        return StepOutcome(again_in_s=again_in_s)

    def _again_in_s(self, world: WorkerWorld) -> float | None:
        """When time alone changes something."""
        spec, machines = world.node_set.spec, {view.machine_name for view in world.workers}
        nodes = [self._machines.get(("", name)) for name in machines if self.context.reads_nodes]
        is_due = any(node is not None and is_silent(node) for node in nodes)
        is_due = is_due or any(
            view.pod.is_ready
            and not view.pod.condemned
            and not is_available(view, spec.min_ready_seconds, world.now)
            for view in world.workers
        )
        is_due = is_due or (spec.redbox.drain_timeout is not None and bool(world.gates))
        return LOOK_AGAIN_S if is_due else None

    async def _event(self, about: ResourcePath, uid: str, severity: str, reason: str, message: str) -> None:
        component = self.context.writer.objects.field_manager
        event = Event(
            about, uid, f"{reason}|{message}", severity, reason, message, "Reconcile", component, repeats=True
        )
        await self.context.writer.publish_event(event)

    # ---------------------------------------------------------------------------------------- deletion
    async def _await_gone(self, world: WorkerWorld) -> StepOutcome:
        if world.workers:
            return StepOutcome(waits_for=f"the end of {len(world.workers)} workers")
        return StepOutcome()

    async def _lift(self, finalizer: Finalizer, world: WorkerWorld) -> StepOutcome:
        """The watch may miss a pod that was just made: it is listed once more."""
        where = ResourcePath(kinds.POD, namespace=world.node_set.namespace)
        selection = {"labelSelector": f"{names.LABEL_NODE_SET}={world.node_set.name}"}
        async for page, _ in self.context.writer.objects.pages(where, selection):
            if page:
                return StepOutcome(waits_for="the watch to show all workers", again_in_s=LOOK_AGAIN_S)
        with contextlib.suppress(StepFailed):  # a label that stays must not keep the NodeSet
            await self._fence_namespace(world)
        outcome = await finalizer.lift(world.node_set)
        self._snapshots.look_away(world.controller, world.node_set.uid)
        return outcome

    # ---------------------------------------------------------------------------------------- what concerns whom
    def _node_sets_of(self, place: Place, _: object) -> Iterable[Place]:
        return [node_set.place for node_set in self.context.watches.node_sets_of(place)]

    def _node_sets_on(self, place: Place, _: object) -> Iterable[Place]:
        return {
            (namespace, view.node_set)
            for (namespace, _), view in self._pods.items()
            if view.machine_name == place[1]
        }

    def _slurm_changed(self, place: Place) -> None:
        for node_set in self.context.watches.node_sets_of(place):
            self.controller.queue.add(node_set.place)


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


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
