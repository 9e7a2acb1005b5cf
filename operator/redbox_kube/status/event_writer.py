"""Writes events: each change of an object is one event, and no object has too many of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from redbox_kube.api.events import Event
from redbox_kube.api.objects import ApiError, Object, ObjectClient
from redbox_kube.runtime.paces import Pace

log = structlog.get_logger(__name__)
EVENTS_AT_ONCE, EVENT_EVERY_S = 25, 300.0
"""Of one object, as kubelets limit theirs: a red-box of a namespace may report changes without an end."""
ANSWER_EVERY_S = 1.0
"""After as many: each answers a write of the user's own, who would otherwise not see the outcome."""


class EventWriter:
    """A failure is only logged: events are hints."""

    def __init__(self, objects: ObjectClient, created: Callable[[], None] = lambda: None) -> None:
        """`created` is called after each write."""
        self._objects = objects
        self._created = created
        self._pace = Pace(EVENTS_AT_ONCE, EVENT_EVERY_S)
        self._answer_pace = Pace(EVENTS_AT_ONCE, ANSWER_EVERY_S)

    async def publish(self, event: Event) -> None:
        """Create it, or count it again if it may repeat; after a number for one object, only few."""
        pace = self._answer_pace if event.is_answer else self._pace
        if pace.take(event.uid):
            return
        body = event.body(datetime.now(UTC))
        try:
            created = await self._objects.create(event.where, body)  # None: it exists already
            if created is None and event.repeats:
                await self._count_again(event, body)
        except ApiError as error:
            log.warning("event not written", about=event.about.path(), reason=event.reason, error=str(error))
        else:
            self._created()

    async def _count_again(self, event: Event, body: Object) -> None:
        where = replace(event.where, name=event.name)
        if (found := await self._objects.get(where)) is not None:
            times = {"count": int(found.get("count") or 1) + 1, "lastTimestamp": body["lastTimestamp"]}
            await self._objects.merge(where, times)
