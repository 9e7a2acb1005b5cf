"""The deletion of condemned workers: live reads, the gate once more, the label off, and then the pod.

A change of the pod between its live read and its deletion fails the deletion's precondition. Slurm is read
after it confirmed the drain, and starts nothing on a drained node. preStop is the second fence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus

from redbox_hosting.api import names
from redbox_hosting.controllers.slurm_snapshots import SlurmSnapshots
from redbox_hosting.controllers.workers.acts.for_each import AT_ONCE, Answers, for_each
from redbox_hosting.controllers.workers.worker_views import WorkerView, read_worker
from redbox_hosting.nodeset.gate import GateDecision, gate
from redbox_hosting.nodeset.observed import WorkerMachine, WorkerPod
from redbox_hosting.slurm.snapshot import SlurmSnapshot
from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import POD
from redbox_kube.api.objects import ResourcePath
from redbox_kube.api.request_options import DeleteOptions
from redbox_kube.status.status_writer import StatusWriter

FORCED_GRACE_S = 30
"""For slurmd and its jobs, which DOWN has ended before."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What came of one worker: deleted, kept by the gate, or changed at the same moment."""

    decision: GateDecision | None = None
    has_changed: bool = False


@dataclass(frozen=True)
class WorkerRemoval:
    """Deletes those of some workers that pass the gate over live reads."""

    writer: StatusWriter
    snapshots: SlurmSnapshots
    machine: Callable[[WorkerView], Awaitable[WorkerMachine]]
    """Read live."""
    drain_confirmed: Callable[[str], float | None]
    """Of a pod by its uid."""
    check: Callable[[], None]
    """Raises when this process may write no more."""

    async def remove(
        self, namespace: str, controller: Place, candidates: Sequence[WorkerView]
    ) -> Answers[WorkerView, Removal]:
        answers = Answers[WorkerView, Removal]()
        for first in range(0, len(candidates), AT_ONCE):
            live = await self.snapshots.read(controller)

            async def remove(view: WorkerView, live: SlurmSnapshot = live) -> Removal:
                return await self._remove(ResourcePath(POD, view.pod.name, namespace), view, live)

            batch = await for_each(candidates[first : first + AT_ONCE], remove)
            answers.done += batch.done
            answers.failed += batch.failed
            if live.unknown:
                break  # Slurm does not answer: the others would take as long
        return answers

    async def _remove(self, where: ResourcePath, candidate: WorkerView, live: SlurmSnapshot) -> Removal:
        body = await self.writer.objects.get(where)
        if body is None or body["metadata"].get("uid") != candidate.pod.uid:
            return Removal()
        view = read_worker(body)
        if view.pod.is_ending or not view.pod.condemned:
            return Removal()
        pod = replace(
            view.pod,
            was_ready=view.pod.was_ready or candidate.pod.was_ready,
            machine=await self.machine(view),
            drain_confirmed=self.drain_confirmed(view.pod.uid),
        )
        decision = gate(pod, live)
        if not decision.is_open:
            return Removal()
        return await self._delete(where, pod, view.version, decision)

    async def _delete(
        self, where: ResourcePath, pod: WorkerPod, version: str, decision: GateDecision
    ) -> Removal:
        self.check()
        if pod.is_protected:
            off = {"resourceVersion": version, "labels": {names.LABEL_PROTECTED: None}}
            written = await self.writer.objects.merge(where, {"metadata": off})
            self.writer.count(POD.name, "patch")
            if written is None:
                return Removal(has_changed=True)
            version = str(written["metadata"]["resourceVersion"])
        options: DeleteOptions = {"gracePeriodSeconds": FORCED_GRACE_S} if pod.force_delete else {}
        answer = await self.writer.delete(where, pod.uid, version=version, **options)
        if answer is HTTPStatus.OK:
            return Removal(decision)
        return Removal(has_changed=answer is HTTPStatus.CONFLICT)
