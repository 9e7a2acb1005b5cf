"""Writes statuses, finalizers and events, and counts the writes.

An event reports one change of one written condition. Its name is derived from that change, so that a second
operator, or the same one after a restart, does not create it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus

import structlog
from prometheus_client import Counter

from redbox_kube.api.events import Event
from redbox_kube.api.objects import ApiError, ApiRefused, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.paces import Pace
from redbox_kube.status.conditions import ConditionEvent

log = structlog.get_logger(__name__)
EVENTS_AT_ONCE, EVENT_EVERY_S = 25, 300.0
"""Of one object, as kubelets limit theirs: a red-box of a namespace may report changes without an end."""
GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})


class StatusWriter:
    """A controller's writes to the API server, counted by kind and verb."""

    def __init__(self, objects: ObjectClient, writes: Counter) -> None:
        self._events = Pace(EVENTS_AT_ONCE, EVENT_EVERY_S)
        self.objects = objects
        self._writes = writes

    async def status(self, where: ResourcePath, uid: str, status: Object) -> Object | None:
        """Write the status; returns the object, or None if it is gone or another one has its name."""
        try:
            written = await self.objects.apply_status(where, status, uid=uid)
        except ApiRefused as refusal:
            if refusal.status in GONE:
                return None
            raise
        self.count(f"{where.kind}/status", "apply")
        return written

    async def withdraw_status(self, where: ResourcePath, *, version: str) -> None:
        """Remove the whole status of this version, which the schema in force does not allow."""
        await self.objects.merge(
            where, {"metadata": {"resourceVersion": version}, "status": None}, subresource="status"
        )
        self.count(f"{where.kind}/status", "patch")

    async def finalizers(self, where: ResourcePath, finalizers: list[str], *, version: str) -> Object | None:
        """Replace the finalizers; returns the object, or None if this version is not the newest."""
        written = await self.objects.set_finalizers(where, finalizers, resource_version=version)
        self.count(where.kind.name, "patch")
        return written

    async def delete(self, where: ResourcePath, uid: str) -> None:
        """Delete the object that has this uid."""
        await self.objects.delete(where, uid=uid)
        self.count(where.kind.name, "delete")

    async def publish(self, where: ResourcePath, uid: str, events: Sequence[ConditionEvent]) -> None:
        """Create these events. A failure is only logged: the condition has the same text."""
        for condition_event in events:
            await self.publish_event(event_of(where, uid, condition_event, self.objects.field_manager))

    async def publish_event(self, event: Event) -> None:
        """Create it, or count it again; after a number for one object few. A failure is only logged."""
        if self._events.take(event.uid):
            return
        body = event.body(datetime.now(UTC))
        try:
            created = await self.objects.create(event.where, body)
            if created is None and event.repeats:
                await self._count_again(event, body)
        except ApiError as error:
            log.warning("event not written", about=event.about.path(), reason=event.reason, error=str(error))
        else:
            self.count("Event", "create")

    async def _count_again(self, event: Event, body: Object) -> None:
        where = replace(event.where, name=event.name)
        if (found := await self.objects.get(where)) is not None:
            times = {"count": int(found.get("count") or 1) + 1, "lastTimestamp": body["lastTimestamp"]}
            await self.objects.merge(where, times)

    def count(self, kind: str, verb: str) -> None:
        self._writes.labels(kind, verb).inc()


def event_of(where: ResourcePath, uid: str, condition_event: ConditionEvent, component: str) -> Event:
    """The event, under a name that only this change has."""
    condition = condition_event.condition
    since = condition.last_transition_time.isoformat()
    return Event(
        about=where,
        uid=uid,
        change=f"{condition.type}|{condition.status}|{condition.reason}|{since}",
        severity=condition_event.severity,
        reason=condition_event.reason,
        message=condition_event.message,
        action=condition.type,
        component=component,
    )
