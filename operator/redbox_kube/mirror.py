"""Objects of one kind as the API server last told of them: one list, then a watch that goes on from it.

Only what `reduced` makes of an object is kept: thousands of whole objects are hundreds of megabytes. A watch
that ends is begun again where it ended; one whose place the API server has forgotten (410) lists again, and
what is missing then is told as gone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import structlog

from redbox_kube.objects import ApiError, ApiRefused, Object, Objects, Where

log = structlog.get_logger(__name__)
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0
Place = tuple[str, str]
"""Namespace and name."""
Kept = Any
"""What is kept of an object, as the one who asks for it wants it."""


def whole(seen: Object) -> Kept | None:
    """Keep all of it."""
    return seen


class Mirror:
    """What there is, by namespace and name. `told` is called after each change, and once after each list."""

    def __init__(
        self,
        objects: Objects,
        where: Where,
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

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except ApiError as error:
                if isinstance(error, ApiRefused):
                    self._version = ""  # 410, or a right that is lacking: only a list tells what is true now
                log.info("watch broken", kind=self._where.kind, error=str(error))
                await asyncio.sleep(self._delay * random.uniform(0.5, 1.0))  # noqa: S311 (spreads load)
                self._delay = min(LONGEST_DELAY_S, self._delay * 2)

    async def _list(self) -> None:
        found: dict[Place, Kept] = {}
        version = ""
        async for page, version in self._objects.pages(self._where, self._selection):  # noqa: B007
            found |= self._kept(page)
        before, self.items = self.items, found
        self._version = version
        self.listed.set()
        self._told(set(found) | set(before))

    async def _watch(self) -> None:
        async for event in self._objects.watch(self._where, self._version, self._selection):
            seen = event["object"]
            if event["type"] == "ERROR":
                raise ApiRefused(int(seen.get("code") or HTTPStatus.GONE), str(seen.get("message")))
            self._version = str(seen["metadata"]["resourceVersion"])
            self._delay = FIRST_DELAY_S
            if event["type"] != "BOOKMARK":
                self._take(seen, gone=event["type"] == "DELETED")

    def _take(self, seen: Object, *, gone: bool) -> None:
        place = _place(seen)
        known = self.items.pop(place, None)
        kept = None if gone else self._reduced(seen)
        if kept is not None:
            self.items[place] = kept
        if kept is not None or known is not None:
            self._told({place})

    def _kept(self, page: Iterable[Object]) -> dict[Place, Kept]:
        reduced = ((_place(one), self._reduced(one)) for one in page)
        return {place: kept for place, kept in reduced if kept is not None}


def _place(seen: Object) -> Place:
    metadata = seen["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
