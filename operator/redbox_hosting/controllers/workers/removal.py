"""The deletion of condemned workers: live reads, the gate once more, the label off, and then the pod.

A change of the pod between its live read and its deletion fails the deletion's precondition. Slurm is read
after it confirmed the drain, and starts nothing on a drained node. preStop is the second fence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus

from redbox_hosting.api import names
from redbox_hosting.controllers.slurm_snapshots import SlurmSnapshots
from redbox_hosting.controllers.workers.worker_views import WorkerView, read_worker
from redbox_hosting.nodeset.gate import GateDecision, gate
from redbox_hosting.nodeset.observed import WorkerMachine
from redbox_hosting.slurm.snapshot import SlurmSnapshot
from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import POD
from redbox_kube.api.objects import ApiError, ResourcePath
from redbox_kube.status.status_writer import StatusWriter

IN_PARALLEL = 8


@dataclass(frozen=True, slots=True)
class Removal:
    """A worker whose deletion was asked for."""

    view: WorkerView
    decision: GateDecision
    error: str = ""

    @property
    def name(self) -> str:
        return self.view.pod.name


@dataclass(frozen=True)
class WorkerRemoval:
    """Deletes those of some workers that pass the gate over live reads."""

    writer: StatusWriter
    snapshots: SlurmSnapshots
    machine: Callable[[WorkerView], Awaitable[WorkerMachine]]
    """Read live."""
    drain_confirmed: Callable[[str], float | None]
    """Of a pod by its uid."""

    async def remove(
        self, namespace: str, controller: Place, candidates: Sequence[WorkerView]
    ) -> list[Removal]:
        """Those that were deleted, and those whose deletion failed; the others wait."""
        done: list[Removal] = []
        for first in range(0, len(candidates), IN_PARALLEL):
            batch = candidates[first : first + IN_PARALLEL]
            live = await self.snapshots.read(controller)
            answers = await asyncio.gather(*(self._tried(namespace, view, live) for view in batch))
            done += [answer for answer in answers if answer is not None]
        return done

    async def _tried(self, namespace: str, view: WorkerView, live: SlurmSnapshot) -> Removal | None:
        try:
            return await self._remove(ResourcePath(POD, view.pod.name, namespace), view, live)
        except (ApiError, OSError, TimeoutError) as error:
            return Removal(view, gate(view.pod, live), str(error) or type(error).__name__)

    async def _remove(self, where: ResourcePath, seen: WorkerView, live: SlurmSnapshot) -> Removal | None:
        body = await self.writer.objects.get(where)
        if body is None or body["metadata"].get("uid") != seen.pod.uid:
            return None
        view = read_worker(body)
        if view.pod.is_ending or not view.pod.condemned:
            return None
        pod = replace(
            view.pod,
            was_ready=view.pod.was_ready or seen.pod.was_ready,
            machine=await self.machine(view),
            drain_confirmed=self.drain_confirmed(view.pod.uid),
        )
        decision = gate(pod, live)
        if not decision.is_open:
            return None
        version = view.version
        if pod.is_protected:
            off = {"resourceVersion": version, "labels": {names.LABEL_PROTECTED: None}}
            written = await self.writer.objects.merge(where, {"metadata": off})
            self.writer.count(POD.name, "patch")
            if written is None:
                return None
            version = str(written["metadata"]["resourceVersion"])
        if await self.writer.delete(where, pod.uid, version=version) is not HTTPStatus.OK:
            return None
        return Removal(view, decision)
