"""An informer: the objects of one kind in their newest version, by a list and then watches.

Only the result of `reduced` is stored: thousands of whole objects are hundreds of megabytes. A watch that
ends is resumed where it ended; after an expired resourceVersion (410) the informer lists again, and reports
missing objects as deleted. An object that `reduced` cannot read is left out and logged: one tenant's object
must not stop the controller for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import structlog

from redbox_kube.api.objects import (
    ApiError,
    ApiRefused,
    ApiUnreachable,
    ApiUnreadable,
    Object,
    ObjectClient,
    ResourcePath,
)
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_shared.backoff import Backoff

log = structlog.get_logger(__name__)
BACKOFF = Backoff(1.0, 30.0)
SHORTEST_WATCH_S = 1.0
MAX_ERROR_LENGTH = 200
Place = tuple[str, str]
"""Namespace and name."""
Reduced = Any
"""The result of `reduced` for an object."""


def whole(body: Object) -> Reduced | None:
    return body


class Informer:
    """All objects by namespace and name. `on_change` is called after each change and after each list."""

    def __init__(
        self,
        objects: ObjectClient,
        where: ResourcePath,
        *,
        selection: Mapping[str, str] | None = None,
        reduced: Callable[[Object], Reduced | None] = whole,
        metadata: bool = False,
        on_change: Callable[[set[Place]], None],
    ) -> None:
        """`metadata`: of the objects nothing else is read, and so no value of a Secret."""
        self.items: dict[Place, Reduced] = {}
        self.listed = asyncio.Event()
        self.error = ""
        """Why the last request failed."""
        self._objects = objects
        self._where = where
        self._selection = selection or {}
        self._reduced = reduced
        self._metadata = metadata
        self._on_change = on_change
        self._version = ""
        self._failures = 0
        self._warnings = GroupedWarnings(f"{where.kind} not read")

    @property
    def unreadable(self) -> list[str]:
        """NAMESPACE/NAME of objects that are there, and that `reduced` cannot read."""
        return sorted(self._warnings.failing)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except ApiError as error:
                if isinstance(error, ApiRefused | ApiUnreadable):
                    # expired version, missing right, undecodable event: only a list has the current state
                    self._version = ""
                self.error = str(error)
                log.info("watch broken", kind=self._where.kind, error=str(error))
                self._failures += 1
                await asyncio.sleep(BACKOFF.pause_s(self._failures))

    async def _list(self) -> None:
        found: dict[Place, Reduced] = {}
        listed: set[str] = set()
        version = ""
        pages = self._objects.pages(self._where, self._selection, metadata=self._metadata)
        async for page, version in pages:  # noqa: B007
            for body in page:
                place = _place(body)
                listed.add("/".join(place))
                if (item := self._read(place, body)) is not None:
                    found[place] = item
            del page  # before the next one is read
        for name in self._warnings.failing.keys() - listed:
            self._warnings.recovered(name)
        before, self.items = self.items, found
        self._version = version
        self.listed.set()
        self._on_change(set(found) | set(before))

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        events = self._objects.watch(self._where, self._version, self._selection, metadata=self._metadata)
        async for event in events:
            body = event["object"]
            if event["type"] == "ERROR":
                code = body.get("code")
                raise ApiRefused(code if isinstance(code, int) else HTTPStatus.GONE, str(body.get("message")))
            self._version = str(body["metadata"]["resourceVersion"])
            if loop.time() - began >= BACKOFF.full_pause_s(self._failures + 1):
                self._failures = 0  # a watch that breaks sooner resumes after growing pauses
            if event["type"] != "BOOKMARK":
                self._update(body, gone=event["type"] == "DELETED")
        if loop.time() - began < SHORTEST_WATCH_S:
            raise ApiUnreachable("the watch ended as soon as it had begun")

    def _update(self, body: Object, *, gone: bool) -> None:
        place = _place(body)
        before = self.items.pop(place, None)
        item = None if gone else self._read(place, body)
        if gone:
            self._warnings.recovered("/".join(place))
        if item is not None:
            self.items[place] = item
        if item is not None or before is not None:
            self._on_change({place})

    def _read(self, place: Place, body: Object) -> Reduced | None:
        name = "/".join(place)
        try:
            item = self._reduced(body)
        except Exception as error:  # noqa: BLE001 (any defect concerns this object only)
            self._warnings.failed(name, repr(error)[:MAX_ERROR_LENGTH])
            return None
        self._warnings.recovered(name)
        return item


def _place(body: Object) -> Place:
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
