"""NodeSets: as many workers as wanted, each a pod that the operator makes, and a node of Slurm.

Creation never needs Slurm. A worker goes in four steps, each of which may be the last one of this operator
and the first one of the next: the annotation `condemned`, DRAIN in Slurm, the gate, the deletion.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from time import monotonic

from redbox_hosting.api import names
from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.build.pods.network import workers_budget
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.build.pods.worker import WorkerPlan
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.workers.acts.marks import marks_due, write_marks
from redbox_hosting.controllers.workers.acts.node_writes import NodeRecords, NodeWrites
from redbox_hosting.controllers.workers.acts.pod_status import publish, write_conditions
from redbox_hosting.controllers.workers.acts.removal import WorkerRemoval
from redbox_hosting.controllers.workers.acts.worker_creation import WorkerCreation
from redbox_hosting.controllers.workers.drain_metrics import follow_drains
from redbox_hosting.controllers.workers.lost_jobs import LostJobs, named_jobs
from redbox_hosting.controllers.workers.node_set_status import NAMESPACE_FENCE, status_of
from redbox_hosting.controllers.workers.plans import acts_of
from redbox_hosting.controllers.workers.revisions import revision_object, surplus_revisions
from redbox_hosting.controllers.workers.worker_observer import LOOK_AGAIN_S, WorkerObserver
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_hosting.nodeset.wanted import NodeVerb
from redbox_kube.api import kinds
from redbox_kube.api.events import WARNING
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import ApiRefused, ResourcePath
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.finalizer import Finalizer
from redbox_kube.controller.owned import OwnedObjects, is_owned, projection
from redbox_kube.controller.status_reporter import StatusReporter
from redbox_kube.controller.steps import ReconcileStep, StepFailed, StepOutcome

AUTHORITY = "Authority"
AT_ONCE_AGAIN_S = 1.0
FENCED_AGAIN_S = 600.0
"""Somebody may have taken the label off."""


@dataclass
class NodeSets:
    """The controller of NodeSets."""

    context: HostingContext
    _writes: NodeWrites = field(default_factory=NodeWrites)
    _records: NodeRecords = field(default_factory=NodeRecords)
    _fenced: dict[str, tuple[bool, float]] = field(default_factory=dict)
    """Whether each namespace was given the label, and when."""

    def __post_init__(self) -> None:
        context = self.context
        self._snapshots = context.snapshots
        self._lost_jobs = LostJobs()
        self._owned = OwnedObjects(
            context.writer, names.NODE_SETS, [kinds.CONTROLLER_REVISION], managed=context.watches.managed
        )
        self._observer = WorkerObserver(context, self._owned, self._writes)
        self._creation = WorkerCreation(context.writer)
        finalizer = Finalizer(context.writer, names.NODE_SETS, names.FINALIZER_WORKERS)
        going = [
            ReconcileStep(AUTHORITY, self._check_authority),
            ReconcileStep("Condemned", self._mark, needs=(AUTHORITY,)),
            ReconcileStep("Nodes", self._write_nodes, needs=(AUTHORITY,)),
            ReconcileStep("Removal", self._remove, needs=(AUTHORITY,)),
            ReconcileStep("Records", self._delete_records, needs=(AUTHORITY,)),
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
                ReconcileStep("Finalizer", partial(self._lift, finalizer), needs=(AUTHORITY, "Gone")),
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
        self._observer.follow_machines(self.controller)
        self._snapshots.follow(self._slurm_changed)
        follow_drains(context.registry, self._observer.nodes_of_workers)

    # ---------------------------------------------------------------------------------------- the steps
    async def _check_authority(self, world: WorkerWorld) -> None:
        """An operator of an older format cannot tell what is still wanted: it makes pods, and ends none."""
        if why_not := self.context.leases.why_not_delete(world.node_set.namespace):
            raise StepFailed(f"no worker is drained, resumed or removed: {why_not}")

    def _check_lease(self, world: WorkerWorld) -> None:
        """Before each write: the Lease may be lost while a step waits for Slurm."""
        if not self.context.leases.may_write(world.node_set.namespace):
            raise StepFailed(self.context.leases.why_not(world.node_set.namespace))

    async def _keep_revisions(self, world: WorkerWorld) -> StepOutcome:
        wanted = revision_object(world.node_set, world.revisions.values(), world.homes)
        did = ""
        if wanted.name not in world.revisions:
            await self._owned.create(world.node_set, wanted)
            did = f"revision {world.newest}"
        if self.context.leases.why_not_delete(world.node_set.namespace):
            return StepOutcome(did=did)
        in_use = {world.newest, *(view.revision for view in world.workers)}
        for body in surplus_revisions(world.node_set, world.revisions, in_use):
            metadata = body["metadata"]
            where = ResourcePath(kinds.CONTROLLER_REVISION, metadata["name"], world.node_set.namespace)
            await self.context.writer.delete(where, metadata["uid"])
        return StepOutcome(did=did)

    async def _fence_namespace(self, world: WorkerWorld) -> StepOutcome:
        """The label by which the deletion of a namespace with workers is refused."""
        namespace = world.node_set.namespace
        holds = bool(world.workers) or world.plan.creates or self._observer.holds_workers(namespace)
        now = monotonic()
        value, at = self._fenced.get(namespace, (None, 0.0))
        if value == holds and now - at < FENCED_AGAIN_S:
            return StepOutcome()
        labels = {names.LABEL_HOLDS_WORKERS: "true" if holds else None}
        where = ResourcePath(kinds.NAMESPACE, namespace)
        try:
            written = await self.context.writer.objects.merge(where, {"metadata": {"labels": labels}})
        except ApiRefused as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            raise StepFailed(
                f"the namespace cannot be labelled, so its deletion ends all but its workers: {error}"
            ) from error
        self.context.writer.count(kinds.NAMESPACE.name, "patch")
        if written is None:
            raise ApiRefused(HTTPStatus.CONFLICT, f"the namespace {namespace} changed at the same moment")
        self._fenced[namespace] = holds, now
        return StepOutcome()

    async def _create(self, world: WorkerWorld) -> StepOutcome:
        if not world.plan.creates:
            return StepOutcome()
        if world.cell is None:
            raise StepFailed(world.why_no_cell)
        await self._check_budget(world.cell)
        made_of = world.node_set, world.newest, world.grace_s
        plans = [WorkerPlan(made_of[0], ordinal, *made_of[1:]) for ordinal in world.plan.create]
        plans += [WorkerPlan(made_of[0], 0, *made_of[1:], node) for node in world.plan.on_machines.values()]
        # A former worker's record may have another size: it goes first, if Slurm answers.
        blocked = set(self._records_due(world))
        waiting = [plan.name for plan in plans if plan.name in blocked]
        plans = [plan for plan in plans if plan.name not in blocked]
        answers = await self._creation.create_all(world.cell, plans, partial(self._check_lease, world))
        answers.check()
        created = [plan.name for plan, is_new in answers.done if is_new]
        waits = f"the records of former nodes {', '.join(waiting)} to go" if waiting else ""
        return StepOutcome(did=f"created {', '.join(created)}" if created else "", waits_for=waits)

    async def _check_budget(self, cell: SlurmCell) -> None:
        """A pod that is evicted before there is a budget dies with its jobs."""
        wanted = workers_budget(cell)
        where = ResourcePath(kinds.POD_DISRUPTION_BUDGET, wanted["metadata"]["name"], cell.namespace)
        found = await self.context.writer.objects.get(where)
        if found is None:
            raise StepFailed(f"the PodDisruptionBudget {where.name} of the Controller is not there yet")
        if projection(found["spec"], wanted["spec"]) != wanted["spec"]:
            raise StepFailed(
                f"the PodDisruptionBudget {where.name} allows evictions: its Controller corrects it, unless "
                "it belongs to somebody else: then delete it"
            )

    async def _mark(self, world: WorkerWorld) -> StepOutcome:
        """The annotation `condemned`: set, or taken from workers that stay after all."""
        marks = marks_due(world, self.context.clock().isoformat())
        for mark in marks:
            if mark.annotations.get(names.ANNOTATION_CONDEMNED_AT):
                self._writes.forget(mark.view.pod.uid)  # somebody may have lifted a drain of before
        check = partial(self._check_lease, world)
        answers = await write_marks(self.context.writer, world.node_set.namespace, marks, check)
        answers.check()
        did = ", ".join(sorted(mark.did for mark, is_written in answers.done if is_written and mark.did))
        return StepOutcome(did=did)

    async def _write_nodes(self, world: WorkerWorld) -> StepOutcome:
        due = {name for name, act in world.acts.items() if act.verb is not None}
        if not due:
            return StepOutcome()
        client = self.context.slurm_of(*world.controller)
        live = await self._snapshots.read(world.controller)
        if live.unknown:
            return StepOutcome(waits_for=f"Slurm: {live.unknown}")
        workers = [view for view in world.workers if view.pod.name in due]
        acts = acts_of(workers, live, world.node_set.spec.redbox.drain_timeout, world.now)
        answers = await self._writes.write(client, workers, acts, partial(self._check_lease, world))
        if answers.done:
            self._snapshots.hurry(world.controller)
        for (view, act), _ in answers.done:
            if act.verb is NodeVerb.DOWN and (jobs := live.jobs_on(view.pod.name)):
                words = f"{view.pod.name} is set DOWN ({act.reason}), with jobs on it: {named_jobs(jobs)}"
                await self._say_lost(world, words)
        answers.check()
        return StepOutcome(
            did=", ".join(sorted(f"{act.verb} {view.pod.name}" for (view, act), _ in answers.done))
        )

    async def _remove(self, world: WorkerWorld) -> StepOutcome:
        candidates = [
            view
            for view in world.workers
            if (decision := world.gates.get(view.pod.name)) is not None and decision.is_open
        ]
        if not candidates:
            return StepOutcome()
        removal = WorkerRemoval(
            self.context.writer,
            self._snapshots,
            self._observer.live_machine,
            self._writes.confirmed,
            partial(self._check_lease, world),
        )
        answers = await removal.remove(world.node_set.namespace, world.controller, candidates)
        did = []
        for view, each in answers.done:
            if each.decision is not None:
                self._writes.forget(view.pod.uid)
                did.append(f"deleted {view.pod.name}: {each.decision.reason}")
        answers.check()
        if changed := [view.pod.name for view, each in answers.done if each.has_changed]:
            waits = f"{', '.join(changed)}, which changed at the same moment"
            return StepOutcome(", ".join(did), waits, again_in_s=AT_ONCE_AGAIN_S)
        return StepOutcome(did=", ".join(did))

    def _records_due(self, world: WorkerWorld) -> list[str]:
        """Those that may go, and that Slurm has not refused to delete."""
        return [
            name
            for name, decision in world.records.items()
            if decision.delete and not self._records.is_refused(world.node_set.uid, name)
        ]

    async def _delete_records(self, world: WorkerWorld) -> StepOutcome:
        if not any(decision.delete for decision in world.records.values()):
            return StepOutcome()
        client = self.context.slurm_of(*world.controller)
        newest = await self._snapshots.read(world.controller)
        live = self._observer.records(world.node_set, newest, world.placement)
        due = [
            name
            for name, decision in live.items()
            if decision.delete and not await self._has_pod(world.node_set.namespace, name)
        ]
        check = partial(self._check_lease, world)
        answers = await self._records.delete(client, world.node_set.uid, due, check)
        if answers.done:
            self._snapshots.hurry(world.controller)
        answers.check()
        return StepOutcome()

    async def _has_pod(self, namespace: str, name: str) -> bool:
        """The watch may not show it yet."""
        return await self.context.writer.objects.get(ResourcePath(kinds.POD, name, namespace)) is not None

    async def _show(self, world: WorkerWorld) -> StepOutcome:
        """Conditions and events of pods, and the jobs that were lost."""
        for view, jobs in self._lost_jobs.found(world):
            await self._say_lost(world, f"{view.pod.name} ended with jobs on it: {named_jobs(jobs)}")
        (await write_conditions(self.context.writer, world)).check()
        return StepOutcome(again_in_s=self._observer.again_in_s(world))

    async def _say_lost(self, world: WorkerWorld, words: str) -> None:
        about = world.node_set.path(names.NODE_SETS)
        await publish(self.context.writer, about, world.node_set.uid, WARNING, ("JobsLost", words))

    # ---------------------------------------------------------------------------------------- deletion
    async def _await_gone(self, world: WorkerWorld) -> StepOutcome:
        if world.workers:
            return StepOutcome(waits_for=f"the end of {len(world.workers)} workers")
        if due := self._records_due(world):
            return StepOutcome(
                waits_for=f"the end of {len(due)} records in Slurm", again_in_s=AT_ONCE_AGAIN_S
            )
        return StepOutcome()

    async def _lift(self, finalizer: Finalizer, world: WorkerWorld) -> StepOutcome:
        """The watch may miss a pod that was just made: it is listed once more."""
        where = ResourcePath(kinds.POD, namespace=world.node_set.namespace)
        selection = {"labelSelector": f"{names.LABEL_NODE_SET}={world.node_set.name}"}
        async for page, _ in self.context.writer.objects.pages(where, selection):
            if any(is_owned(body, world.node_set) for body in page):
                return StepOutcome(waits_for="the watch to show all workers", again_in_s=LOOK_AGAIN_S)
        with contextlib.suppress(StepFailed):  # without the right to label it there is no label
            await self._fence_namespace(world)
        outcome = await finalizer.lift(world.node_set)
        self._snapshots.look_away(world.controller, world.node_set.uid)
        self._observer.forget(world.node_set)
        return outcome

    def _node_sets_of(self, place: Place, _: object) -> Iterable[Place]:
        return [node_set.place for node_set in self.context.watches.node_sets_of(place)]

    def _slurm_changed(self, place: Place) -> None:
        for node_set in self.context.watches.node_sets_of(place):
            self.controller.queue.add(node_set.place)
