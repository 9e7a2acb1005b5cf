"""Partitions: as they are, and what changes in them.

Slurm is asked when somebody asks, and every few seconds while somebody watches. Revisions are this process's
own: partitions are in no journal, so a server that starts anew has those who watch list them again.
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
from redbox.jobs.context import Context
from redbox.jobs.errors import Busy, Gone
from redbox.jobs.query.ttl_cache import Remembered
from redbox.jobs.query.watch import Watcher
from redbox_api.models import Partition, PartitionEvent, PartitionList

log = structlog.get_logger(__name__)
REMOVALS_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Difference:
    """A partition that changed, or was taken away."""

    revision: int
    partition: Partition
    dropped: bool = False


class Board:
    """The partitions as last seen, each with the revision at which it changed."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(6)
        self.number = 0
        self.moved = asyncio.Event()  # set, and replaced, at each change
        self._shown: dict[str, Difference] = {}
        self._removed: deque[Difference] = deque(maxlen=REMOVALS_REMEMBERED)
        self._floor = 0  # removals up to here are forgotten

    @property
    def revision(self) -> str:
        return f"{self.epoch}.{self.number}"

    def show(self, partitions: Iterable[Partition]) -> None:
        """These are all there are now."""
        before = self.number
        seen = {partition.name: partition for partition in partitions}
        for name in [name for name in self._shown if name not in seen]:
            self._remove(self._shown.pop(name).partition)
        for name, partition in seen.items():
            known = self._shown.get(name)
            if known is None or known.partition != partition:
                self._shown[name] = Difference(self._next_number(), partition)
        if self.number > before:
            self.moved.set()
            self.moved = asyncio.Event()

    def number_of(self, revision: str | None) -> int:
        """The number in a revision that a watcher holds; Gone where it means nothing any more."""
        if revision is None:
            return -1
        epoch, _, number = revision.partition(".")
        known = epoch == self.epoch and number.isascii() and number.isdigit()
        if not known or not self._floor <= int(number) <= self.number:
            raise Gone(f"Revision {revision} is not known any more: list the partitions, watch from there.")
        return int(number)

    def since(self, number: int) -> list[Difference]:
        """What has changed since, oldest first; Gone where removals since then are forgotten."""
        if -1 < number < self._floor:
            raise Gone("Too slow: more partitions were removed than are remembered. List them again.")
        removed = list(self._removed) if number >= 0 else []
        changed = [one for one in [*self._shown.values(), *removed] if one.revision > number]
        return sorted(changed, key=lambda difference: difference.revision)

    def _remove(self, partition: Partition) -> None:
        if len(self._removed) == self._removed.maxlen:
            self._floor = self._removed[0].revision
        self._removed.append(Difference(self._next_number(), partition, dropped=True))

    def _next_number(self) -> int:
        self.number += 1
        return self.number


@dataclass(frozen=True, slots=True)
class PartitionView:
    """What one watcher may see of the board, in events."""

    caller: Caller
    stale_since: Callable[[], datetime | None]

    def concerns(self, difference: Difference) -> bool:
        return may_use(self.caller, difference.partition)

    def event(self, difference: Difference, revision: str) -> PartitionEvent:
        kind = "gone" if difference.dropped else "partition"
        return PartitionEvent(type=kind, revision=revision, partition=difference.partition)

    def bookmark(self, revision: str) -> PartitionEvent:
        return PartitionEvent(type="bookmark", revision=revision, stale_since=self.stale_since())

    def dropped(self, revision: str, why: str) -> PartitionEvent:
        return PartitionEvent(type="error", revision=revision, message=why)


class Partitions:
    """Asks for them, and tells what changed."""

    def __init__(self, context: Context, take_turn: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._take_turn = take_turn
        self._board = Board()
        self._fresh_s = context.settings.partitions_every_s
        self._known = Remembered(self._ask, context.clock, self._fresh_s)
        self._stale_since: datetime | None = None
        self._watchers = 0
        self._watched = asyncio.Event()

    async def list(self, caller: Caller) -> PartitionList:
        """Those that the caller's rule allows."""
        partitions = await self._look()
        return PartitionList(
            items=[one for one in partitions if may_use(caller, one)],
            revision=self._board.revision,
            stale_since=self._stale_since,
        )

    async def watch(self, caller: Caller, since: str | None) -> AsyncIterator[PartitionEvent]:
        """What changes in them; Gone where `since` is too old, Busy where Slurm has not answered yet."""
        await self._look()
        return self._events(caller, self._board.number_of(since))

    async def run(self) -> None:
        """Look as long as somebody watches."""
        while True:
            await self._watched.wait()
            await self._context.clock.sleep(self._fresh_s)
            try:
                await self._look()
            except Busy as fault:
                log.warning("the partitions could not be read", error=str(fault))
            except Exception:  # what one odd partition does to our code must not end the server
                log.exception("the partitions could not be read")

    async def _events(self, caller: Caller, number: int) -> AsyncIterator[PartitionEvent]:
        view = PartitionView(caller, lambda: self._stale_since)
        watcher = Watcher(self._board, view, self._context.clock, self._context.settings)
        with self._one_more_watcher():
            async with contextlib.aclosing(watcher.events(number)) as events:
                async for event in events:
                    yield event

    @contextlib.contextmanager
    def _one_more_watcher(self) -> Iterator[None]:
        self._watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._watched.clear()

    async def _look(self) -> tuple[Partition, ...]:
        known = await self._known.get()
        self._stale_since = known.stale_since
        self._board.show(known.value)
        return known.value

    async def _ask(self) -> tuple[Partition, ...]:
        await self._take_turn()
        return await self._context.ask(self._context.workload.partitions())


def may_use(caller: Caller, partition: Partition) -> bool:
    """Whether the caller's rule allows it."""
    allowed = caller.limits.partitions
    return allowed is None or partition.name in allowed
