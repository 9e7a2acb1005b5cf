"""Watches of the kit: the objects of one kind, and what is reconciled after a change of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath

ItemT = TypeVar("ItemT")
EVERYWHERE = ("",)
Concerns = Callable[[Place, ItemT], Iterable[Place]]
"""The objects that are to be reconciled after a change of this item."""


def itself(place: Place, _: object) -> Iterable[Place]:
    return (place,)


def without_managed_fields(body: Object) -> Any:  # noqa: ANN401 (an item: by default a whole object)
    """Managed fields are half of an object, and nothing reads them."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return {**body, "metadata": metadata}


class WatchedKind(Generic[ItemT]):
    """The objects of one kind in their newest version, by an informer for each namespace that is served."""

    def __init__(
        self,
        objects: ObjectClient,
        kind: Kind,
        *,
        namespaces: Sequence[str] = EVERYWHERE,
        selection: Mapping[str, str] | None = None,
        reduced: Callable[[Object], ItemT | None] = without_managed_fields,
    ) -> None:
        self.kind = kind
        self._followers: list[Callable[[Place], None]] = []
        self._informers = {
            namespace: Informer(
                objects,
                ResourcePath(kind, namespace=namespace),
                selection=selection,
                reduced=reduced,
                on_change=self._changed,
            )
            for namespace in namespaces
        }

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())

    async def listed(self, namespace: str = "") -> None:
        """Wait until this namespace is listed, or all are: only then a missing object does not exist."""
        own = self._informers.get(namespace)
        for informer in (own,) if own else self._informers.values():
            await informer.listed.wait()

    def why_not_listed(self, namespace: str = "") -> str:
        """For a condition; empty if it is listed."""
        own = self._informers.get(namespace)
        for informer in (own,) if own else self._informers.values():
            if not informer.listed.is_set():
                return f"{self.kind.plural} cannot be listed: {informer.error or 'no response yet'}"
        return ""

    def get(self, place: Place) -> ItemT | None:
        informer = self._informers.get(place[0]) or self._informers.get("")
        return None if informer is None else informer.items.get(place)

    def unreadable_in(self, namespace: str) -> list[str]:
        """Names of objects that are there and cannot be read, as those of a newer release."""
        informer = self._informers.get(namespace) or self._informers.get("")
        found = [] if informer is None else informer.unreadable
        return [name for own, _, name in (each.partition("/") for each in found) if own == namespace]

    def items(self) -> Iterator[tuple[Place, ItemT]]:
        for informer in self._informers.values():
            yield from list(informer.items.items())

    def items_in(self, namespace: str) -> Iterator[tuple[Place, ItemT]]:
        """Those of one namespace."""
        own = self._informers.get(namespace)
        if own is not None:
            yield from list(own.items.items())
        else:
            yield from (each for each in self.items() if each[0][0] == namespace)

    def follow(
        self,
        notify: Callable[[Place], None],
        concerns: Concerns[ItemT] = itself,
        input_of: Callable[[ItemT], object] | None = None,
    ) -> None:
        """Call `notify` for all that a change concerns, now or before it.

        With `input_of` only a change of that part of an item counts. What its end concerns is asked then: it
        may depend on other objects.
        """
        before: dict[Place, tuple[frozenset[Place], object, ItemT]] = {}

        def changed(place: Place) -> None:
            last = before.pop(place, None)
            concerned, given = last[:2] if last else (frozenset[Place](), None)
            item = self.get(place)
            if item is not None:
                newest = frozenset(concerns(place, item)), input_of and input_of(item)
                before[place] = *newest, item
                if input_of is not None and newest == (concerned, given):
                    return
                concerned |= newest[0]
            elif last is not None:
                concerned |= frozenset(concerns(place, last[2]))
            for key in concerned:
                notify(key)

        self._followers.append(changed)

    def _changed(self, places: set[Place]) -> None:
        for place in places:
            for changed in self._followers:
                changed(place)
