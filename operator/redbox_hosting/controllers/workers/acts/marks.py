"""The marks on the pods of workers: `condemned`, since when, and `protected`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from redbox_hosting.api import names
from redbox_hosting.controllers.workers.acts.for_each import Answers, for_each
from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_kube.status.status_writer import StatusWriter


@dataclass(frozen=True, slots=True)
class PodMark:
    """Annotations and labels of one pod that change; None removes one."""

    view: WorkerView
    annotations: dict[str, str | None] = field(default_factory=dict)
    labels: dict[str, str | None] = field(default_factory=dict)

    @property
    def did(self) -> str:
        if names.ANNOTATION_CONDEMNED not in self.annotations:
            return ""
        reason = self.annotations[names.ANNOTATION_CONDEMNED]
        return f"{self.view.pod.name} {f'is to go: {reason}' if reason else 'stays'}"


def marks_due(world: WorkerWorld, at: str) -> list[PodMark]:
    """Pure. `at`: now."""
    marks = []
    protects = world.node_set.spec.workload_disruption_protection
    for view in world.workers:
        mark = PodMark(view)
        reason = world.plan.condemned.get(view.pod.name)
        if reason is not None:
            mark.annotations[names.ANNOTATION_CONDEMNED] = reason or None
            mark.annotations[names.ANNOTATION_CONDEMNED_AT] = at if reason else None
        elif bool(view.pod.condemned) != (view.condemned_at is not None):
            mark.annotations[names.ANNOTATION_CONDEMNED_AT] = at if view.pod.condemned else None
        gate, is_evictable = world.gates.get(view.pod.name), view.pod.name in world.evictable
        may_go = is_evictable or (gate is not None and gate.is_open)
        if protects and not view.pod.is_protected and not view.pod.is_ending and not may_go:
            mark.labels[names.LABEL_PROTECTED] = "true"  # a deletion that was begun, and is not due
        if view.pod.is_protected and (is_evictable or not protects):
            mark.labels[names.LABEL_PROTECTED] = None
        if mark.annotations or mark.labels:
            marks.append(mark)
    return marks


async def write_marks(
    writer: StatusWriter, namespace: str, marks: list[PodMark], check: Callable[[], None]
) -> Answers[PodMark, bool]:
    """Whether each was written: False if the pod is gone, or another one has its name."""

    async def write(mark: PodMark) -> bool:
        check()
        metadata = {
            "uid": mark.view.pod.uid,
            **({"annotations": mark.annotations} if mark.annotations else {}),
            **({"labels": mark.labels} if mark.labels else {}),
        }
        where = ResourcePath(kinds.POD, mark.view.pod.name, namespace)
        written = await writer.objects.merge(where, {"metadata": metadata})
        writer.count(kinds.POD.name, "patch")
        return written is not None

    return await for_each(marks, write)
