"""The condition of each worker's pod, with an event about its change."""

from __future__ import annotations

from datetime import UTC, datetime

from redbox_hosting.api import names
from redbox_hosting.controllers.workers.acts.for_each import Answers, for_each
from redbox_hosting.controllers.workers.pod_conditions import UNKNOWN, wanted_condition
from redbox_hosting.controllers.workers.worker_views import PodCondition, WorkerView
from redbox_hosting.controllers.workers.worker_world import WorkerWorld
from redbox_kube.api import kinds
from redbox_kube.api.events import NORMAL, WARNING, Event
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.status.status_writer import GONE, StatusWriter
from redbox_shared.printable import printable


async def write_conditions(writer: StatusWriter, world: WorkerWorld) -> Answers[WorkerView, None]:
    """Only those that differ from what the pods have."""
    wanted = {view.pod.uid: wanted_condition(view, world) for view in world.workers}

    async def write(view: WorkerView) -> None:
        condition = wanted[view.pod.uid]
        if condition is not None:
            await _write(writer, world, view, condition)

    return await for_each((view for view in world.workers if wanted[view.pod.uid] != view.condition), write)


async def _write(writer: StatusWriter, world: WorkerWorld, view: WorkerView, wanted: PodCondition) -> None:
    where = ResourcePath(kinds.POD, view.pod.name, world.node_set.namespace)
    has_changed = view.condition is None or view.condition.status != wanted.status
    condition: Object = {
        "type": names.CONDITION_DRAINING,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": printable(wanted.message)[:1024],
        **({"lastTransitionTime": _rfc3339(world.now)} if has_changed else {}),
    }
    body = {"metadata": {"uid": view.pod.uid}, "status": {"conditions": [condition]}}
    try:
        await writer.objects.apply(where, body, subresource="status")
    except ApiRefused as refusal:
        if refusal.status in GONE:
            return
        raise
    writer.count("Pod/status", "apply")
    reason = "NodeInService" if wanted.status == "False" else "NodeDraining"
    severity = WARNING if wanted.status == UNKNOWN else NORMAL
    message = wanted.message or "the node takes jobs"
    await publish(writer, where, view.pod.uid, severity, (reason, message))


async def publish(
    writer: StatusWriter, about: ResourcePath, uid: str, severity: str, text: tuple[str, str]
) -> None:
    """An event of one reason and message; repeats are counted."""
    reason, message = text
    event = Event(
        about=about,
        uid=uid,
        change=f"{reason}|{message}",
        severity=severity,
        reason=reason,
        message=message,
        action="Reconcile",
        component=writer.objects.field_manager,
        repeats=True,
    )
    await writer.publish_event(event)


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
