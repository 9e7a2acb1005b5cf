"""What the operator writes of a SlurmJob or SlurmCluster: its status, and events of what changed.

An event tells one change of one condition that was written. Its name is made of that change, so that it is
told once, whoever tells it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus

import structlog

from redbox_kube.api.events import Event
from redbox_kube.api.objects import ApiError, ApiRefused, Object, ObjectClient, ResourcePath
from redbox_operator.api.conditions import ConditionEvent
from redbox_operator.api.constants import FIELD_MANAGER
from redbox_operator.api.slurmjob import SlurmJobRef
from redbox_operator.metrics import OperatorMetrics

log = structlog.get_logger(__name__)
GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})


def path_of(place: SlurmJobRef) -> ResourcePath:
    """A job's place, as the API server names it."""
    return ResourcePath(place.resource.kind, place.name, place.namespace, place.resource.api_version)


class StatusWriter:
    """Writes, and counts what it wrote."""

    def __init__(self, objects: ObjectClient, metrics: OperatorMetrics) -> None:
        self.objects = objects
        self._metrics = metrics

    async def status(self, where: ResourcePath, uid: str, status: Object) -> Object | None:
        """The object with its new status; None where it is gone, or another has its name by now."""
        try:
            written = await self.objects.apply_status(where, status, uid=uid)
        except ApiRefused as refusal:
            if refusal.status in GONE:
                return None
            raise
        self.count(f"{where.kind}/status", "apply")
        return written

    async def finalizers(self, where: ResourcePath, finalizers: list[str], *, version: str) -> Object | None:
        """The object with these finalizers; None where this version is not the newest."""
        written = await self.objects.set_finalizers(where, finalizers, resource_version=version)
        self.count(where.kind, "patch")
        return written

    async def delete(self, where: ResourcePath, uid: str) -> None:
        """Delete exactly this one."""
        await self.objects.delete(where, uid=uid)
        self.count(where.kind, "delete")

    async def tell(self, where: ResourcePath, uid: str, told: Sequence[ConditionEvent]) -> None:
        """One event for each. Where that fails nothing else does: the condition says the same."""
        for telling in told:
            event = event_of(where, uid, telling)
            try:
                await self.objects.create(event.where, event.body(datetime.now(UTC)))
            except ApiError as error:
                log.warning("event not written", about=where.path(), reason=telling.reason, error=str(error))
            else:
                self.count("Event", "create")

    def count(self, kind: str, verb: str) -> None:
        """One more write."""
        self._metrics.writes.labels(kind, verb).inc()


def event_of(where: ResourcePath, uid: str, telling: ConditionEvent) -> Event:
    """The event, under a name that no other change has."""
    condition = telling.condition
    since = condition.last_transition_time.isoformat()
    return Event(
        about=where,
        uid=uid,
        change=f"{condition.type}|{condition.status}|{condition.reason}|{since}",
        severity=telling.severity,
        reason=telling.reason,
        message=telling.message,
        action=condition.type,
        component=FIELD_MANAGER,
    )
