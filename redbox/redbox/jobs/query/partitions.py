"""Partitions: their present state, and a watch of their changes.

Slurm is queried when a caller asks, and every few seconds while a watch is open. Revisions belong to this
process: partitions are in no journal, so after a restart watchers list them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import structlog

from redbox.core.domain import Caller
from redbox.jobs.context import Context, current
from redbox.jobs.errors import Gone, JobsBusy
from redbox.jobs.query.watch import Watcher
from redbox.jobs.store.revisions import resume_number
from redbox_api.models import Partition, PartitionEvent, PartitionList

log = structlog.get_logger(__name__)
REMOVALS_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A partition that changed, or was removed."""

    revision: int
    partition: Partition
    dropped: bool = False


class PartitionTable:
    """The partitions of the last query, each with the revision at which it changed."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(6)
        self.number = 0
        self.moved = asyncio.Event()  # set, and replaced, at each change
        self._present: dict[str, PartitionChange] = {}
        self._removed: deque[PartitionChange] = deque(maxlen=REMOVALS_REMEMBERED)
        self._floor = 0  # removals up to here are forgotten

    @property
    def revision(self) -> str:
        return f"{self.epoch}.{self.number}"

    def update(self, partitions: Iterable[Partition]) -> None:
        """Replace the contents by these partitions, and number what changed."""
        before = self.number
        current = {partition.name: partition for partition in partitions}
        for name in [name for name in self._present if name not in current]:
            self._remove(self._present.pop(name).partition)
        for name, partition in current.items():
            change = self._present.get(name)
            if change is None or change.partition != partition:
                self._present[name] = PartitionChange(self._next_number(), partition)
        if self.number > before:
            self.moved.set()
            self.moved = asyncio.Event()

    def number_of(self, revision: str | None) -> int:
        """The number that a watch resumes from; Gone if it cannot."""
        return resume_number(
            revision, epoch=self.epoch, oldest=self._floor, newest=self.number, things="partitions"
        )

    def since(self, number: int) -> list[PartitionChange]:
        """The changes since then, oldest first; Gone if removals since then are forgotten."""
        if -1 < number < self._floor:
            raise Gone("Too slow: more partitions were removed than are remembered. List them again.")
        removed = list(self._removed) if number >= 0 else []
        changed = [change for change in [*self._present.values(), *removed] if change.revision > number]
        return sorted(changed, key=lambda change: change.revision)

    def _remove(self, partition: Partition) -> None:
        if len(self._removed) == self._removed.maxlen:
            self._floor = self._removed[0].revision
        self._removed.append(PartitionChange(self._next_number(), partition, dropped=True))

    def _next_number(self) -> int:
        self.number += 1
        return self.number


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The changes that one caller may see, as events."""

    caller: Caller
    stale_since: Callable[[], datetime | None]

    def concerns(self, difference: PartitionChange) -> bool:
        return may_use(self.caller, difference.partition)

    def event(self, difference: PartitionChange, revision: str) -> PartitionEvent:
        kind = "gone" if difference.dropped else "partition"
        return PartitionEvent(type=kind, revision=revision, partition=difference.partition)

    def bookmark(self, revision: str) -> PartitionEvent:
        return PartitionEvent(type="bookmark", revision=revision, stale_since=self.stale_since())

    def dropped(self, revision: str, why: str) -> PartitionEvent:
        return PartitionEvent(type="error", revision=revision, message=why)


class PartitionQueries:
    """Lists and watches partitions for callers."""

    def __init__(self, context: Context, take_turn: Callable[[], Awaitable[None]]) -> None:
        self._context = context
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

    async def watch(self, caller: Caller, since: str | None) -> AsyncIterator[PartitionEvent]:
        """Changes of partitions; Gone if `since` is too old, JobsBusy if Slurm has not answered yet."""
        await self._refresh()
        return self._events(caller, self._table.number_of(since))

    async def run(self) -> None:
        """Query Slurm while there are watchers."""
        while True:
            await self._watched.wait()
            await self._context.clock.sleep(self._context.settings.partitions_every_s)
            try:
                await self._refresh()
            except JobsBusy as fault:
                log.warning("the partitions could not be read: %s", fault)
            except Exception:  # a fault of ours over one odd partition must not end the server
                log.exception("the partitions could not be read")

    async def _events(self, caller: Caller, number: int) -> AsyncIterator[PartitionEvent]:
        view = PartitionView(caller, lambda: self._stale_since)
        watcher = Watcher(self._table, view, self._context.clock, self._context.settings)
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
        return await self._context.call(self._context.workload.partitions())


def may_use(caller: Caller, partition: Partition) -> bool:
    """Whether the caller's rule allows it."""
    allowed = caller.limits.partitions
    return allowed is None or partition.name in allowed
