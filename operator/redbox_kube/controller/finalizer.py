"""A finalizer of ours: added before anything is made that would outlive the object, lifted last.

A finalizer that nothing lifts blocks the deletion of the whole namespace: the step that lifts it needs only
what has to end first.
"""

from __future__ import annotations

from dataclasses import dataclass

from redbox_kube.api.kinds import Kind
from redbox_kube.controller.kube_object import KubeObject
from redbox_kube.controller.steps import StepOutcome
from redbox_kube.status.status_writer import StatusWriter


@dataclass(frozen=True)
class Finalizer:
    """Steps for `Reconciliation.steps` and `.deletion`."""

    writer: StatusWriter
    kind: Kind
    name: str

    async def add(self, item: KubeObject) -> StepOutcome:
        if self.name in item.finalizers:
            return StepOutcome()
        return await self._set(item, [*item.finalizers, self.name], f"finalizer {self.name} added")

    async def lift(self, item: KubeObject) -> StepOutcome:
        if self.name not in item.finalizers:
            return StepOutcome()
        others = [name for name in item.finalizers if name != self.name]
        return await self._set(item, others, "")  # an event about an object that is gone helps nobody

    async def _set(self, item: KubeObject, finalizers: list[str], did: str) -> StepOutcome:
        version = str(item.metadata["resourceVersion"])
        written = await self.writer.finalizers(item.path(self.kind), finalizers, version=version)
        if written is None:
            return StepOutcome(waits_for="the newest version of the object")
        return StepOutcome(did=did)
