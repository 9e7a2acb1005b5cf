"""Partitions: their present state, and a watch of their changes.

Slurm is queried when a caller asks, and every few seconds while a watch is open. Revisions belong to this
process: partitions are in no journal, so after a restart watchers list them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import structlog

from redbox.core.domain import Caller
from redbox.jobs.context import Context, JobsComponent, current
from redbox.jobs.errors import JobsBusy
from redbox.jobs.query.watch import Watcher
from redbox.jobs.store.revisions import RevisionedTable, TableChange
from redbox_api.models import Partition, PartitionEvent, PartitionList

log = structlog.get_logger(__name__)
REMOVALS_REMEMBERED = 1000


PartitionChange = TableChange[Partition]


class PartitionTable(RevisionedTable[Partition]):
    """The partitions of the last query, each with the revision at which it changed."""

    def __init__(self) -> None:
        super().__init__(secrets.token_hex(6), "partitions", remembered=REMOVALS_REMEMBERED)
        self._present: dict[str, PartitionChange] = {}

    def update(self, partitions: Iterable[Partition]) -> None:
        """Replace the contents by these partitions, and number what changed."""
        before = self.number
        current = {partition.name: partition for partition in partitions}
        for name in [name for name in self._present if name not in current]:
            self._remember_removal(self._present.pop(name).thing, self._next_number())
        for name, partition in current.items():
            change = self._present.get(name)
            if change is None or change.thing != partition:
                self._present[name] = TableChange(partition, self._next_number())
        if self.number > before:
            self._announce()

    def _changed_since(self, number: int) -> Iterable[PartitionChange]:
        changed = (change for change in self._present.values() if change.revision > number)
        return sorted(changed, key=lambda change: change.revision)

    def _next_number(self) -> int:
        self.number += 1
        return self.number


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The changes that one caller may see, as events."""

    caller: Caller
    stale_since: Callable[[], datetime | None]

    def concerns(self, difference: PartitionChange) -> bool:
        return may_use(self.caller, difference.thing)

    def event(self, difference: PartitionChange, revision: str) -> PartitionEvent:
        kind = "gone" if difference.dropped else "partition"
        return PartitionEvent(type=kind, revision=revision, partition=difference.thing)

    def bookmark(self, revision: str) -> PartitionEvent:
        return PartitionEvent(type="bookmark", revision=revision, stale_since=self.stale_since())

    def dropped(self, revision: str, why: str) -> PartitionEvent:
        return PartitionEvent(type="error", revision=revision, message=why)


class PartitionQueries(JobsComponent):
    """Lists and watches partitions for callers."""

    def __init__(self, context: Context, take_turn: Callable[[], Awaitable[None]]) -> None:
        super().__init__(context)
        self._take_turn = take_turn
        self._table = PartitionTable()
        self._cache = context.cached(self._fetch)
        self._stale_since: datetime | None = None
        self._watchers = 0
        self._watched = asyncio.Event()

    async def list(self, caller: Caller) -> PartitionList:
        """The partitions that the caller's rule allows."""
        partitions = await self._refresh()
        return PartitionList(
            items=[partition for partition in partitions if may_use(caller, partition)],
            revision=self._table.revision,
            stale_since=self._stale_since,
        )

    async def watch(self, caller: Caller, since: str | None = None) -> AsyncIterator[PartitionEvent]:
        """Changes of partitions; Gone if `since` is too old, JobsBusy if Slurm has not answered yet."""
        await self._refresh()
        return self._events(caller, self._table.number_of(since))

    async def run(self) -> None:
        """Query Slurm while there are watchers."""
        while True:
            await self._watched.wait()
            await self._clock.sleep(self._settings.partitions_every_s)
            try:
                await self._refresh()
            except JobsBusy as fault:
                log.warning("the partitions could not be read: %s", fault)
            except Exception:  # a fault of ours over one odd partition must not end the server
                log.exception("the partitions could not be read")

    async def _events(self, caller: Caller, number: int) -> AsyncIterator[PartitionEvent]:
        view = PartitionView(caller, lambda: self._stale_since)
        watcher = Watcher(self._table, self._table.since, view, self._clock, self._settings)
        with self._counted_watcher():
            async with contextlib.aclosing(watcher.events(number)) as events:
                async for event in events:
                    yield event

    @contextlib.contextmanager
    def _counted_watcher(self) -> Iterator[None]:
        self._watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._watched.clear()

    async def _refresh(self) -> tuple[Partition, ...]:
        cached = await current(self._cache)
        self._stale_since = cached.stale_since
        self._table.update(cached.value)
        return cached.value

    async def _fetch(self) -> tuple[Partition, ...]:
        await self._take_turn()
        return await self._context.call(self._workload.partitions())


def may_use(caller: Caller, partition: Partition) -> bool:
    """Whether the caller's rule allows it."""
    allowed = caller.limits.partitions
    return allowed is None or partition.name in allowed
