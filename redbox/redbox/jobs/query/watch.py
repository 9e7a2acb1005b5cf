"""Watches: what changed, as it changes, to whoever resumes from a revision.

A watcher keeps nothing but its place in the table, so that one who is slow sees fewer, newer states and
costs nobody anything. One who takes a single line for a minute is told so and dropped: its connection is
dead, or its program is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from redbox.core.clock import Clock, finishes_within
from redbox.jobs.errors import Gone
from redbox.jobs.record.packed_records import RecordSummary
from redbox.jobs.record.record import JobRecord
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.record_index import RecordChange
from redbox_api.models import Job, WatchEvent


class Revisioned(Protocol):
    """A change, and its place among all changes."""

    @property
    def revision(self) -> int: ...


ChangeT = TypeVar("ChangeT", bound=Revisioned)
EventT = TypeVar("EventT")
ChangeT_co = TypeVar("ChangeT_co", bound=Revisioned, covariant=True)
ChangeT_contra = TypeVar("ChangeT_contra", contravariant=True)
EventT_co = TypeVar("EventT_co", covariant=True)


class ChangeSource(Protocol[ChangeT_co]):
    """What can be watched: it says what is different since a number, and when it moved."""

    epoch: str
    number: int
    moved: asyncio.Event

    def since(self, number: int) -> Sequence[ChangeT_co]: ...


class WatchView(Protocol[ChangeT_contra, EventT_co]):
    """What one watcher may and wants to see, and in which words it is told."""

    def concerns(self, difference: ChangeT_contra) -> bool: ...

    def event(self, difference: ChangeT_contra, revision: str) -> EventT_co: ...

    def bookmark(self, revision: str) -> EventT_co: ...

    def dropped(self, revision: str, why: str) -> EventT_co: ...


@dataclass(frozen=True, slots=True)
class JobView:
    """Jobs, for one watcher."""

    wanted: Callable[[RecordSummary], bool]
    shown: Callable[[RecordSummary], bool]  # False: to this watcher it is gone
    view: Callable[[JobRecord], Job]
    remark: Callable[[], str | None]  # what a bookmark should say: that the truth is stale

    def concerns(self, difference: RecordChange) -> bool:
        return self.wanted(difference.outline)

    def event(self, difference: RecordChange, revision: str) -> WatchEvent:
        gone = difference.dropped or not self.shown(difference.outline)
        return WatchEvent(type="gone" if gone else "job", revision=revision, job=self.view(difference.record))

    def bookmark(self, revision: str) -> WatchEvent:
        return WatchEvent(type="bookmark", revision=revision, message=self.remark())

    def dropped(self, revision: str, why: str) -> WatchEvent:
        return WatchEvent(type="error", revision=revision, message=why)


@dataclass(frozen=True, slots=True)
class Watcher(Generic[ChangeT, EventT]):
    """One who watches."""

    source: ChangeSource[ChangeT]
    view: WatchView[ChangeT, EventT]
    clock: Clock
    settings: JobsSettings

    async def events(self, number: int) -> AsyncGenerator[EventT, None]:
        """All that changed since `number`, then all that changes, with a bookmark every ten seconds."""
        bookmark_at = self.clock.monotonic() + self.settings.bookmark_every_s
        while True:
            moved = self.source.moved
            try:
                differences = self.source.since(number)
            except Gone as gone:
                yield self.view.dropped(self._revision(number), gone.detail)
                return
            reached = self.source.number
            for difference in filter(self.view.concerns, differences):
                given = self.clock.monotonic()
                revision = self._revision(difference.revision)
                yield self.view.event(difference, revision)
                if self.clock.monotonic() - given > self.settings.slow_watcher_s:
                    yield self.view.dropped(revision, "Too slow: a single line took a minute to be read.")
                    return
            number = reached
            if bookmark_at <= self.clock.monotonic():
                bookmark_at = self.clock.monotonic() + self.settings.bookmark_every_s
                yield self.view.bookmark(self._revision(number))
            elif self.source.number == number:
                await self._moved(moved, bookmark_at)

    async def _moved(self, moved: asyncio.Event, until: float) -> None:
        waiting = asyncio.ensure_future(moved.wait())
        try:
            await finishes_within(self.clock, until - self.clock.monotonic(), waiting)
        finally:
            waiting.cancel()

    def _revision(self, number: int) -> str:
        return f"{self.source.epoch}.{max(number, 0)}"
