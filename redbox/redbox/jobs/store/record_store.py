"""The one way to change a record: decide, commit, publish, in that order, one change of a key at a time.

A change takes its key's turn, decides from the committed state without awaiting anything, and keeps the
turn until the journal has answered, even if its caller is cancelled meanwhile. Revisions are assigned when a
change is passed to the journal, which answers in order, so that a later revision is never published before an
earlier one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from redbox.core.domain import JobKey
from redbox.jobs.errors import JournalError
from redbox.jobs.record.record import JobRecord, Lineage, Tombstone, lineage
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.journal_facts import number_in
from redbox.jobs.store.record_index import RecordIndex
from redbox.jobs.store.sqlite import JournalBatch
from redbox.jobs.store.tombstones import Tombstones

AT_A_STRETCH = 250
FLOOR = "deletions forgotten up to"


@dataclass(frozen=True, slots=True)
class Change:
    """Changes to commit together; empty: none."""

    save: tuple[JobRecord, ...] = ()
    forget: tuple[JobKey, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    lift: tuple[Tombstone, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.save or self.forget or self.tombstones or self.lift)


class KeyLocks:
    """One change of a key at a time."""

    def __init__(self) -> None:
        self._waiting: dict[Lineage, deque[asyncio.Future[None]]] = {}

    def take_free(self, line: Lineage) -> bool:
        """Take it if it is free."""
        if line in self._waiting:
            return False
        self._waiting[line] = deque()
        return True

    async def take(self, line: Lineage) -> None:
        while not self.take_free(line):
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[line].append(woken)
            await woken

    def give_back(self, line: Lineage) -> None:
        for woken in self._waiting.pop(line):
            if not woken.done():
                woken.set_result(None)


class RecordStore:
    """The journal with its table and tombstones."""

    def __init__(self, journal: Journal, *, deletions: int) -> None:
        contents = journal.take_contents()
        self._journal = journal
        self._turns = KeyLocks()
        floor = number_in(contents.facts, FLOOR)
        self.facts = contents.facts
        self.index = RecordIndex(journal.epoch, contents.records, floor=floor, deletions=deletions)
        self.tombstones = Tombstones(contents.tombstones, self.index.has_records)
        self._number = self.index.number

    async def change(self, lines: Iterable[Lineage], decide: Callable[[], Change]) -> None:
        """Decide when it is these keys' turn; returns when the change is on the disk and can be seen.

        Lines are taken in sorted order, so that no two changes wait for each other.
        """
        taken: list[Lineage] = []
        try:
            for line in sorted(set(lines)):
                await self._turns.take(line)
                taken.append(line)
            change = decide()
        except BaseException:
            self._give_back(taken)
            raise
        await asyncio.shield(self._commit(change, taken))

    async def change_one(self, key: JobKey, decide: Callable[[JobRecord], JobRecord]) -> None:
        """Change this one when it is its turn, if it is still there."""

        def decide_now() -> Change:
            record = self.index.get(key)
            decided = record if record is None else decide(record)
            return Change() if decided is None or decided == record else Change(save=(decided,))

        await self.change([lineage(key.owner, key.key)], decide_now)

    async def change_free(
        self, records: Iterable[JobRecord], decide: Callable[[JobRecord], JobRecord]
    ) -> list[tuple[JobRecord, JobRecord]]:
        """Change these in one commit, not waiting for those that are being changed; returns (old, new)."""
        taken: set[Lineage] = set()
        try:
            pairs = await self._decide_free(records, decide, taken)
        except BaseException:
            self._give_back(taken)
            raise
        await asyncio.shield(self._commit(Change(tuple(new for _, new in pairs)), taken))
        return pairs

    async def _decide_free(
        self, records: Iterable[JobRecord], decide: Callable[[JobRecord], JobRecord], taken: set[Lineage]
    ) -> list[tuple[JobRecord, JobRecord]]:
        pairs: list[tuple[JobRecord, JobRecord]] = []
        for number, candidate in enumerate(records, 1):
            if number % AT_A_STRETCH == 0:
                await asyncio.sleep(0)  # ten thousand jobs must not delay a log line
            line = lineage(candidate.key.owner, candidate.key.key)
            if line not in taken and not self._turns.take_free(line):
                continue
            taken.add(line)
            record = self.index.get(candidate.key)
            decided = record if record is None else decide(record)
            if record is not None and decided is not None and decided is not record and decided != record:
                pairs.append((record, decided))
        return pairs

    async def note(self, name: str, value: str) -> None:
        """Keep a fact about the journal as a whole."""
        self.facts[name] = value
        await asyncio.shield(self._put(JournalBatch(facts=((name, value),)), lambda: None, ()))

    def _commit(self, change: Change, taken: Collection[Lineage]) -> asyncio.Future[None]:
        if not change:
            self._give_back(taken)
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        saved = tuple(replace(record, revision=self._next_number()) for record in change.save)
        forgotten = tuple((self._next_number(), key) for key in change.forget)
        facts = ((FLOOR, str(self._number)),) if forgotten else ()
        batch = JournalBatch(saved, change.forget, change.tombstones, change.lift, facts)

        def publish() -> None:
            for stone in change.tombstones:
                self.tombstones.add(stone)
            for stone in change.lift:
                self.tombstones.remove(stone)
            self.index.publish(saved, forgotten)

        return self._put(batch, publish, taken)

    def _put(
        self, batch: JournalBatch, publish: Callable[[], None], taken: Collection[Lineage]
    ) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answered(fault: JournalError | None) -> None:
            if fault is None:
                publish()
            self._give_back(taken)
            if done.done():
                return
            if fault is None:
                done.set_result(None)
            else:
                done.set_exception(fault)

        self._journal.commit(batch, answered)
        return done

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _give_back(self, taken: Iterable[Lineage]) -> None:
        for line in set(taken):
            self._turns.give_back(line)
