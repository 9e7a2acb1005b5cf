"""One snapshot of a NodeSet's world: its workers, their machines, their Slurm, and what is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.controllers.workers.plans import WorkersPlan, is_registering
from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.nodeset.gate import GateDecision
from redbox_hosting.nodeset.observed import WorkerMachine
from redbox_hosting.nodeset.placement import Placement
from redbox_hosting.nodeset.records import RecordDecision
from redbox_hosting.nodeset.wanted import NodeAct
from redbox_hosting.slurm.snapshot import SlurmSnapshot
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import Object


@dataclass(frozen=True, slots=True)
class WorkerWorld:
    """All that the steps look at."""

    node_set: NodeSet
    cell: SlurmCell | None
    why_no_cell: str
    """Why no pod can be made."""
    grace_s: int
    workers: tuple[WorkerView, ...]
    revisions: Mapping[str, Object]
    newest: str
    """The revision of the spec."""
    homes: str
    """The claim that workers mount."""
    snapshot: SlurmSnapshot
    plan: WorkersPlan
    placement: Placement | None
    """Of a NodeSet with a worker on each Kubernetes node; None: of another one, or they cannot be read."""
    acts: Mapping[str, NodeAct]
    gates: Mapping[str, GateDecision]
    """Of the condemned, by the names of pods."""
    evictable: frozenset[str]
    """Those on cordoned machines that would pass the gate: the drain of the machine may end them."""
    records: Mapping[str, RecordDecision]
    """Of nodes of ours without a pod."""
    is_stale: bool
    """Whether workers are to be chosen by a newer snapshot."""
    now: float

    @property
    def controller(self) -> Place:
        return self.node_set.namespace, self.node_set.spec.controller_ref.name

    @property
    def has_unknown_gate(self) -> bool:
        return any(decision.state == "Unknown" for decision in self.gates.values())

    @property
    def awaits(self) -> bool:
        """Whether something moves that Slurm will show."""
        starting = any(
            is_registering(view, self.snapshot, self.now) or (not view.pod.is_ready and not view.problem)
            for view in self.workers
        )
        acting = any(act.verb is not None for act in self.acts.values())
        drained = {WorkerMachine.CORDONED, WorkerMachine.FAULTY}
        cordoned = any(view.pod.machine in drained for view in self.workers)
        deletable = any(decision.delete for decision in self.records.values())
        going = cordoned or bool(self.gates)
        return self.is_stale or starting or acting or deletable or going or self.plan.creates
