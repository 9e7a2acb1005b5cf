"""All committed records, in the order of their last change, and what changed since a revision.

A revision is `<epoch>.<n>`; the epoch belongs to the journal, n grows with each change. The index keeps no
history of changes: a dict in the order of revisions is enough to find what differs now, so that a watcher
that was away for an hour, or is slow, costs nothing. Only deletions are remembered, a limited number of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from redbox.core.domain import JobKey, Owner
from redbox.jobs.errors import Gone
from redbox.jobs.record.packed_records import RecordSummary, pack, unpack
from redbox.jobs.record.record import JobRecord, Lineage, lineage
from redbox.jobs.store.revisions import resume_number


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A job that changed, or was dropped."""

    outline: RecordSummary
    revision: int
    dropped: bool = False

    @property
    def record(self) -> JobRecord:
        return unpack(self.outline)


class RecordIndex:
    """Records by key, by mark and by lineage. Only the record store writes here, after the journal.

    Those that have ended are kept packed: going through all of them is done by their outlines.
    """

    def __init__(self, epoch: str, records: Iterable[RecordSummary], *, floor: int, deletions: int) -> None:
        self.epoch = epoch
        self.moved = asyncio.Event()  # set, and replaced, at each change
        self.number = floor
        self._floor = floor  # deletions up to here are forgotten
        self._deletions: deque[RecordChange] = deque(maxlen=deletions)
        self._records: dict[JobKey, RecordSummary] = {}
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

    def __iter__(self) -> Iterator[RecordSummary]:
        return iter(self._records.values())

    def get(self, key: JobKey) -> JobRecord | None:
        outline = self._records.get(key)
        return None if outline is None else unpack(outline)

    def marked(self, mark: str) -> JobRecord | None:
        key = self._by_mark.get(mark)
        return None if key is None else unpack(self._records[key])

    def line(self, owner: Owner, key: str) -> list[JobRecord]:
        """All attempts of a key; of the account's one uid where the owner names it."""
        keys = self._by_lineage.get(lineage(owner, key), ())
        return [unpack(self._records[k]) for k in keys if owner.account_uid in ("", k.owner.account_uid)]

    def has_records(self, line: Lineage) -> bool:
        return line in self._by_lineage

    def watched(self) -> list[JobRecord]:
        """Those that polls must look for."""
        return [unpack(self._records[key]) for key in self._watched]

    def number_of(self, revision: str | None) -> int:
        """The number that a watch resumes from; Gone if it cannot."""
        return resume_number(
            revision, epoch=self.epoch, oldest=self._floor, newest=self.number, things="jobs"
        )

    def since(self, number: int) -> list[RecordChange]:
        """What has changed since, oldest first; Gone where deletions since then are forgotten."""
        if -1 < number < self._floor:
            raise Gone(
                "Too slow: more jobs were deleted than are remembered. List the jobs, and watch from there."
            )
        changed = []
        for record in reversed(self._records.values()):
            if record.revision <= number:
                break
            changed.append(RecordChange(record, record.revision))
        dropped = [gone for gone in self._deletions if gone.revision > number] if number >= 0 else []
        return sorted(changed + dropped, key=lambda difference: difference.revision)

    # ------------------------------------------------------------------------------------------ writing

    def publish(self, saved: Collection[JobRecord], forgotten: Collection[tuple[int, JobKey]]) -> None:
        """Show what was committed."""
        for number, key in forgotten:
            self._drop(number, key)
        for record in saved:
            self._enter(pack(record))
        self.moved.set()
        self.moved = asyncio.Event()

    def _enter(self, record: RecordSummary) -> None:
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
        self._deletions.append(RecordChange(record, number, dropped=True))
