"""Objects of one kind as the API server last told of them: one list, then a watch that goes on from it.

Only what `reduced` makes of an object is kept: thousands of whole objects are hundreds of megabytes. A watch
that ends is begun again where it ended; one whose place the API server has forgotten (410) lists again, and
what is missing then is told as gone. An object that `reduced` cannot read is left out, and said: what one
tenant wrote must not end what serves all.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
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

log = structlog.get_logger(__name__)
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0
LONGEST_WHY = 200
Place = tuple[str, str]
"""Namespace and name."""
Kept = Any
"""What is kept of an object, as the one who asks for it wants it."""


def whole(seen: Object) -> Kept | None:
    """Keep all of it."""
    return seen


class Informer:
    """What there is, by namespace and name. `told` is called after each change, and once after each list."""

    def __init__(
        self,
        objects: ObjectClient,
        where: ResourcePath,
        *,
        selection: Mapping[str, str] | None = None,
        reduced: Callable[[Object], Kept | None] = whole,
        told: Callable[[set[Place]], None],
    ) -> None:
        self.items: dict[Place, Kept] = {}
        self.listed = asyncio.Event()
        self._objects = objects
        self._where = where
        self._selection = selection or {}
        self._reduced = reduced
        self._told = told
        self._version = ""
        self._delay = FIRST_DELAY_S
        self._unreadable: set[Place] = set()
        self._troubles = GroupedWarnings(f"{where.kind} not read")

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except ApiError as error:
                if isinstance(error, ApiRefused | ApiUnreadable):
                    # 410, a right that is lacking, no event: only a list tells what is true now
                    self._version = ""
                log.info("watch broken", kind=self._where.kind, error=str(error))
                await asyncio.sleep(self._delay * random.uniform(0.5, 1.0))  # noqa: S311 (spreads load)
                self._delay = min(LONGEST_DELAY_S, self._delay * 2)

    async def _list(self) -> None:
        found: dict[Place, Kept] = {}
        there: set[Place] = set()
        version = ""
        async for page, version in self._objects.pages(self._where, self._selection):  # noqa: B007
            found |= self._kept(page)
            there |= {_place(one) for one in page}
        for place in self._unreadable - there:
            self._is_well(place)
        before, self.items = self.items, found
        self._version = version
        self.listed.set()
        self._told(set(found) | set(before))

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async for event in self._objects.watch(self._where, self._version, self._selection):
            seen = event["object"]
            if event["type"] == "ERROR":
                code = seen.get("code")
                raise ApiRefused(code if isinstance(code, int) else HTTPStatus.GONE, str(seen.get("message")))
            self._version = str(seen["metadata"]["resourceVersion"])
            if loop.time() - began >= self._delay:  # one that breaks again and again is begun ever later
                self._delay = FIRST_DELAY_S
            if event["type"] != "BOOKMARK":
                self._take(seen, gone=event["type"] == "DELETED")
        if loop.time() - began < FIRST_DELAY_S:
            raise ApiUnreachable("the watch ended as soon as it began")

    def _take(self, seen: Object, *, gone: bool) -> None:
        place = _place(seen)
        known = self.items.pop(place, None)
        kept = None if gone else self._read(place, seen)
        if gone:
            self._is_well(place)
        if kept is not None:
            self.items[place] = kept
        if kept is not None or known is not None:
            self._told({place})

    def _kept(self, page: Iterable[Object]) -> dict[Place, Kept]:
        places = ((_place(one), one) for one in page)
        reduced = ((place, self._read(place, one)) for place, one in places)
        return {place: kept for place, kept in reduced if kept is not None}

    def _read(self, place: Place, seen: Object) -> Kept | None:
        try:
            kept = self._reduced(seen)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this object's alone)
            self._unreadable.add(place)
            self._troubles.failed("/".join(place), repr(error)[:LONGEST_WHY])
            return None
        self._is_well(place)
        return kept

    def _is_well(self, place: Place) -> None:
        if place in self._unreadable:
            self._unreadable.discard(place)
            self._troubles.recovered("/".join(place))


def _place(seen: Object) -> Place:
    metadata = seen["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
