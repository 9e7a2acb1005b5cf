"""Events of claims and volumes, as `kubectl describe` shows them: one for each thing that happened."""

from __future__ import annotations

import structlog

from redbox_kube.api.events import NORMAL, WARNING, Event
from redbox_kube.api.objects import ObjectClient, ResourcePath
from redbox_kube.status.event_writer import EventWriter
from redbox_resourced.nodes.node_view import MANAGER

log = structlog.get_logger(__name__)
SUCCEEDED, FAILED, DELETE_FAILED = "ProvisioningSucceeded", "ProvisioningFailed", "VolumeFailedDelete"


class VolumeEvents:
    """Remembers the last event of each object: retries of one failure are one event."""

    def __init__(self, objects: ObjectClient) -> None:
        self._writer = EventWriter(objects)
        self._last: dict[ResourcePath, str] = {}

    async def report(self, about: ResourcePath, uid: str, reason: str, message: str) -> None:
        event = Event(
            about=about,
            uid=uid,
            change=f"{reason}|{message}",
            severity=NORMAL if reason == SUCCEEDED else WARNING,
            reason=reason,
            message=message,
            action="Delete" if reason == DELETE_FAILED else "Provision",
            component=MANAGER,
        )
        if self._last.get(about) == event.name:
            return
        self._last[about] = event.name
        log.info("volume", reason=reason, name=about.name, namespace=about.namespace, message=message)
        await self._writer.publish(event)

    def forget(self, about: ResourcePath) -> None:
        self._last.pop(about, None)
