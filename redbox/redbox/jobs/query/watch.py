"""Watches: the changes since a revision, then each change as it happens.

A watcher keeps only its position, so that a slow one receives fewer, newer states and costs nothing. One
that takes a minute to read a single line gets an error event and is dropped: its connection is dead, or its
program is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from redbox.core.clock import Clock, is_set_within
from redbox.jobs.errors import Gone
from redbox.jobs.record.packed_records import RecordSummary, unpack
from redbox.jobs.record.record import JobRecord
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.record_index import RecordChange
from redbox.jobs.store.revisions import RevisionedTable, TableChange
from redbox_api.models import Job, WatchEvent

ThingT = TypeVar("ThingT")
EventT = TypeVar("EventT")
EventT_co = TypeVar("EventT_co", covariant=True)
STEP = 100
"""Changes between two turns of the event loop: there may be a hundred thousand."""


class WatchView(Protocol[ThingT, EventT_co]):
    """The changes that one watcher may and wants to see, as events."""

    def concerns(self, difference: TableChange[ThingT]) -> bool: ...

    def event(self, difference: TableChange[ThingT], revision: str) -> EventT_co: ...

    def bookmark(self, revision: str) -> EventT_co: ...

    def dropped(self, revision: str, why: str) -> EventT_co: ...


@dataclass(frozen=True, slots=True)
class JobView:
    """Jobs, for one watcher."""

    wanted: Callable[[RecordSummary], bool]
    shown: Callable[[RecordSummary], bool]  # False: for this watcher it is gone
    view: Callable[[JobRecord], Job]
    remark: Callable[[], str | None]  # a bookmark's message: that the states are stale

    def concerns(self, difference: RecordChange) -> bool:
        return self.wanted(difference.thing)

    def event(self, difference: RecordChange, revision: str) -> WatchEvent:
        gone = difference.dropped or not self.shown(difference.thing)
        return WatchEvent(
            type="gone" if gone else "job", revision=revision, job=self.view(unpack(difference.thing))
        )

    def bookmark(self, revision: str) -> WatchEvent:
        return WatchEvent(type="bookmark", revision=revision, message=self.remark())

    def dropped(self, revision: str, why: str) -> WatchEvent:
        return WatchEvent(type="error", revision=revision, message=why)


@dataclass(frozen=True, slots=True)
class Watcher(Generic[ThingT, EventT]):
    """One open watch."""

    source: RevisionedTable[ThingT]
    since: Callable[[int], Iterator[TableChange[ThingT]]]
    """The source's own, or of a part of it."""
    view: WatchView[ThingT, EventT]
    clock: Clock
    settings: JobsSettings

    async def events(self, number: int) -> AsyncGenerator[EventT, None]:
        """The changes since `number`, then each change, with a bookmark every ten seconds."""
        bookmark_at = self.clock.monotonic() + self.settings.bookmark_every_s
        while True:
            moved = self.source.moved
            try:
                differences = self.since(number)
            except Gone as gone:
                yield self.view.dropped(self._revision(number), gone.detail)
                return
            reached = self.source.number
            for count, difference in enumerate(differences, 1):
                if count % STEP == 0:
                    await asyncio.sleep(0)
                if not self.view.concerns(difference):
                    continue
                sent_at = self.clock.monotonic()
                revision = self._revision(difference.revision)
                yield self.view.event(difference, revision)
                if self.clock.monotonic() - sent_at > self.settings.slow_watcher_s:
                    yield self.view.dropped(revision, "Too slow: a single line took a minute to be read.")
                    return
            number = reached
            if bookmark_at <= self.clock.monotonic():
                bookmark_at = self.clock.monotonic() + self.settings.bookmark_every_s
                yield self.view.bookmark(self._revision(number))
            elif self.source.number == number:
                await is_set_within(self.clock, bookmark_at - self.clock.monotonic(), moved)

    def _revision(self, number: int) -> str:
        return f"{self.source.epoch}.{max(number, 0)}"
