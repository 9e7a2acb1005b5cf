"""Writes statuses, finalizers and events, and counts the writes.

An event reports one change of one written condition. Its name is derived from that change, so that a second
operator, or the same one after a restart, does not create it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Unpack

from prometheus_client import Counter

from redbox_kube.api.events import Event
from redbox_kube.api.objects import ApiError, ApiRefused, Object, ObjectClient, ResourcePath
from redbox_kube.api.request_options import DeleteOptions
from redbox_kube.status.conditions import ConditionEvent
from redbox_kube.status.event_writer import EventWriter

GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})


class DeletionForbidden(ApiError):
    """A newer release of the controller has written in this namespace."""


class StatusWriter:
    """A controller's writes to the API server, counted by kind and verb."""

    def __init__(
        self, objects: ObjectClient, writes: Counter, *, why_not_delete: Callable[[str], str] = lambda _: ""
    ) -> None:
        """`why_not_delete`: why nothing of a namespace may be deleted; empty if it may."""
        self._events = EventWriter(objects, lambda: self.count("Event", "create"))
        self.objects = objects
        self._writes = writes
        self._why_not_delete = why_not_delete

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

    async def finalizers(self, where: ResourcePath, finalizers: list[str], *, version: str) -> Object | None:
        """Replace the finalizers; returns the object, or None if this version is not the newest."""
        written = await self.objects.set_finalizers(where, finalizers, resource_version=version)
        self.count(where.kind.name, "patch")
        return written

    async def delete(
        self, where: ResourcePath, uid: str, *, version: str = "", **options: Unpack[DeleteOptions]
    ) -> HTTPStatus:
        """Delete the object that has this uid, with `version` only this version; answers as ObjectClient."""
        if why_not := self._why_not_delete(where.namespace):
            raise DeletionForbidden(f"{where.kind} {where.name} is not deleted: {why_not}")
        answer = await self.objects.delete(where, uid=uid, version=version, **options)
        self.count(where.kind.name, "delete")
        return answer

    async def publish(self, where: ResourcePath, uid: str, events: Sequence[ConditionEvent]) -> None:
        """Create these events. A failure is only logged: the condition has the same text."""
        for condition_event in events:
            await self.publish_event(event_of(where, uid, condition_event, self.objects.field_manager))

    async def publish_event(self, event: Event) -> None:
        await self._events.publish(event)

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
