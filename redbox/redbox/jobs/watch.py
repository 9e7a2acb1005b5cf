"""Watches: what changed, as it changes, to whoever resumes from a revision.

A watcher keeps nothing but its place in the table, so that one who is slow sees fewer, newer states and
costs nobody anything. One who takes a single line for a minute is told so and dropped: its connection is
dead, or its program is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from redbox.jobs.clock import Clock, finished_within
from redbox.jobs.errors import Gone
from redbox.jobs.records import Record
from redbox.jobs.settings import JobsSettings
from redbox.jobs.table import Difference, Table
from redbox_api.models import Job, WatchEvent


@dataclass(frozen=True, slots=True)
class Watcher:
    """What one watcher may and wants to see."""

    table: Table
    clock: Clock
    settings: JobsSettings
    wanted: Callable[[Record], bool]
    shown: Callable[[Record], bool]  # False: to this watcher it is gone
    answer: Callable[[Record], Job]
    remark: Callable[[], str | None]  # what a bookmark should say: that the truth is stale

    async def events(self, number: int) -> AsyncIterator[WatchEvent]:
        """All that changed since `number`, then all that changes, with a bookmark every ten seconds."""
        bookmark_at = self.clock.monotonic() + self.settings.bookmark_every_s
        while True:
            moved = self.table.moved
            try:
                differences = self.table.since(number)
            except Gone as gone:
                yield self._dropped(number, gone.detail)
                return
            reached = self.table.number
            for difference in filter(self._concerns, differences):
                given = self.clock.monotonic()
                yield self._event(difference)
                if self.clock.monotonic() - given > self.settings.slow_watcher_s:
                    yield self._dropped(
                        difference.revision, "Too slow: a single line took a minute to be read."
                    )
                    return
            number = reached
            if bookmark_at <= self.clock.monotonic():
                bookmark_at = self.clock.monotonic() + self.settings.bookmark_every_s
                yield WatchEvent(type="bookmark", revision=self._revision(number), message=self.remark())
            elif self.table.number == number:
                await self._moved(moved, bookmark_at)

    async def _moved(self, moved: asyncio.Event, until: float) -> None:
        waiting = asyncio.ensure_future(moved.wait())
        try:
            await finished_within(self.clock, until - self.clock.monotonic(), waiting)
        finally:
            waiting.cancel()

    def _concerns(self, difference: Difference) -> bool:
        return self.wanted(difference.record)

    def _event(self, difference: Difference) -> WatchEvent:
        gone = difference.dropped or not self.shown(difference.record)
        job = self.answer(difference.record)
        return WatchEvent(
            type="gone" if gone else "job", revision=self._revision(difference.revision), job=job
        )

    def _dropped(self, number: int, why: str) -> WatchEvent:
        return WatchEvent(type="error", revision=self._revision(max(number, 0)), message=why)

    def _revision(self, number: int) -> str:
        return f"{self.table.epoch}.{number}"
