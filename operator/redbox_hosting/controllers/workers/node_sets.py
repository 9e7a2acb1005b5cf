"""NodeSets: as many workers as wanted, each a pod that the operator makes, and a node of Slurm.

Creation never needs Slurm. A worker goes in four steps, each of which may be the last one of this operator
and the first one of the next: the annotation `condemned`, DRAIN in Slurm, the gate, the deletion.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from redbox_hosting.api import names
from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.build.pods.worker import WorkerPlan
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.workers.lost_jobs import LostJobs
from redbox_hosting.controllers.workers.node_set_status import NAMESPACE_FENCE, status_of
from redbox_hosting.controllers.workers.node_writes import NodeWrites, delete_records
from redbox_hosting.controllers.workers.pod_conditions import UNKNOWN, wanted_condition
from redbox_hosting.controllers.workers.removal import WorkerRemoval
from redbox_hosting.controllers.workers.revisions import revision_object, surplus_revisions
from redbox_hosting.controllers.workers.worker_creation import WorkerCreation
from redbox_hosting.controllers.workers.worker_observer import LOOK_AGAIN_S, WorkerObserver
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_kube.api import kinds
from redbox_kube.api.events import NORMAL, WARNING, Event
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.finalizer import Finalizer
from redbox_kube.controller.owned import OwnedObjects
from redbox_kube.controller.status_reporter import StatusReporter
from redbox_kube.controller.steps import ReconcileStep, StepFailed, StepOutcome

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
        context = self.context
        self._snapshots = context.snapshots
        self._lost_jobs = LostJobs()
        self._owned = OwnedObjects(
            context.writer, names.NODE_SETS, [kinds.CONTROLLER_REVISION], namespaces=context.namespaces
        )
        self._observer = WorkerObserver(context, self._owned, self._writes)
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
            self._observer.observe,
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
                *self._observer.watches,
                (context.watches.controllers, self._node_sets_of),
            ],
            serves=context.leases.may_write,
        )
        self._snapshots.follow(self._slurm_changed)

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
        holds = bool(world.workers or world.plan.create) or self._observer.holds_workers(namespace)
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
            self.context.writer, self._snapshots, self._observer.live_machine, self._writes.confirmed
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
        again_in_s = self._observer.again_in_s(world)
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

    def _node_sets_of(self, place: Place, _: object) -> Iterable[Place]:
        return [node_set.place for node_set in self.context.watches.node_sets_of(place)]

    def _slurm_changed(self, place: Place) -> None:
        for node_set in self.context.watches.node_sets_of(place):
            self.controller.queue.add(node_set.place)


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
