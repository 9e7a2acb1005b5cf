"""All committed records, in the order of their last change, and what changed since a revision.

A revision is `<epoch>.<n>`; the epoch belongs to the journal, n grows with each change. The table keeps no
history of changes: a dict in the order of revisions is enough to say what is different now, so that a
watcher who was away for an hour, or is slow, costs nothing. Only deletions are remembered, a limited number
of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from redbox.core.domain import JobKey, Owner
from redbox.jobs.errors import Gone
from redbox.jobs.record.packed_records import Outline, pack, unpack
from redbox.jobs.record.record import Lineage, Record, lineage


@dataclass(frozen=True, slots=True)
class Difference:
    """A job that changed, or was dropped."""

    outline: Outline
    revision: int
    dropped: bool = False

    @property
    def record(self) -> Record:
        """All of it."""
        return unpack(self.outline)


class Table:
    """Records by key, by mark and by lineage. Only the ledger writes here, after the journal has.

    Those that have ended are kept packed: going through all of them is done by their outlines.
    """

    def __init__(self, epoch: str, records: Iterable[Outline], *, floor: int, deletions: int) -> None:
        self.epoch = epoch
        self.moved = asyncio.Event()  # set, and replaced, at each change
        self.number = floor
        self._floor = floor  # deletions up to here are forgotten
        self._deletions: deque[Difference] = deque(maxlen=deletions)
        self._records: dict[JobKey, Outline] = {}
        self._by_mark: dict[str, JobKey] = {}
        self._by_lineage: dict[Lineage, tuple[JobKey, ...]] = {}
        self._watched: dict[JobKey, None] = {}
        for record in records:
            self._enter(record)

    # ------------------------------------------------------------------------------------------ reading

    @property
    def revision(self) -> str:
        return f"{self.epoch}.{self.number}"

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Outline]:
        return iter(self._records.values())

    def get(self, key: JobKey) -> Record | None:
        outline = self._records.get(key)
        return None if outline is None else unpack(outline)

    def marked(self, mark: str) -> Record | None:
        key = self._by_mark.get(mark)
        return None if key is None else unpack(self._records[key])

    def line(self, owner: Owner, key: str) -> list[Record]:
        """All attempts of a key; of the account's one uid where the owner names it."""
        keys = self._by_lineage.get(lineage(owner, key), ())
        return [unpack(self._records[k]) for k in keys if owner.account_uid in ("", k.owner.account_uid)]

    def has_records(self, line: Lineage) -> bool:
        return line in self._by_lineage

    def watched(self) -> list[Record]:
        """Those that polls must look for."""
        return [unpack(self._records[key]) for key in self._watched]

    def number_of(self, revision: str | None) -> int:
        """The number in a revision that a watcher holds; Gone where it means nothing any more."""
        if revision is None:
            return -1
        epoch, _, number = revision.partition(".")
        if epoch != self.epoch or not number.isdigit() or int(number) > self.number:
            raise Gone(f"Revision {revision} is not of this journal: list the jobs, and watch from there.")
        if int(number) < self._floor:
            raise Gone(f"Revision {revision} is too old: list the jobs, and watch from there.")
        return int(number)

    def since(self, number: int) -> list[Difference]:
        """What has changed since, oldest first; Gone where deletions since then are forgotten."""
        if -1 < number < self._floor:
            raise Gone(
                "Too slow: more jobs were deleted than are remembered. List the jobs, and watch from there."
            )
        changed = []
        for record in reversed(self._records.values()):
            if record.revision <= number:
                break
            changed.append(Difference(record, record.revision))
        dropped = [gone for gone in self._deletions if gone.revision > number] if number >= 0 else []
        return sorted(changed + dropped, key=lambda difference: difference.revision)

    # ------------------------------------------------------------------------------------------ writing

    def publish(self, saved: Collection[Record], forgotten: Collection[tuple[int, JobKey]]) -> None:
        """Show what was committed."""
        for number, key in forgotten:
            self._drop(number, key)
        for record in saved:
            self._enter(pack(record))
        self.moved.set()
        self.moved = asyncio.Event()

    def _enter(self, record: Outline) -> None:
        key = record.key
        if self._records.pop(key, None) is None:
            self._by_mark[record.mark] = key
            line = lineage(key.owner, key.key)
            self._by_lineage[line] = (*self._by_lineage.get(line, ()), key)
        self._records[key] = record
        self.number = max(self.number, record.revision)
        if record.watched:
            self._watched[key] = None
        else:
            self._watched.pop(key, None)

    def _drop(self, number: int, key: JobKey) -> None:
        record = self._records.pop(key, None)
        if record is None:
            return
        self.number = max(self.number, number)
        del self._by_mark[record.mark]
        self._watched.pop(key, None)
        line = lineage(key.owner, key.key)
        rest = tuple(other for other in self._by_lineage.pop(line) if other != key)
        if rest:
            self._by_lineage[line] = rest
        if len(self._deletions) == self._deletions.maxlen:
            self._floor = self._deletions[0].revision
        self._deletions.append(Difference(record, number, dropped=True))
