"""All committed records, in the order of their last change, and what changed since a revision.

A revision is `<epoch>.<n>`; the epoch belongs to the journal, n grows with each change. The index keeps no
history of changes: a dict in the order of revisions is enough to find what differs now, so that a watcher
that was away for an hour, or is slow, costs nothing. Only deletions are remembered, a limited number of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Reversible
from itertools import takewhile

from redbox.core.domain import JobKey, Owner
from redbox.jobs.record.packed_records import RecordSummary, pack, unpack
from redbox.jobs.record.record import JobRecord, Lineage, SortKey, lineage, sort_key
from redbox.jobs.store.revisions import RevisionedTable, TableChange

RecordChange = TableChange[RecordSummary]


class RecordIndex(RevisionedTable[RecordSummary]):
    """Records by key, owner, mark and lineage. Only the record store writes here, after the journal.

    Those that have ended are kept packed: going through all of them is done by their outlines.
    """

    def __init__(self, epoch: str, records: Iterable[RecordSummary], *, floor: int, deletions: int) -> None:
        super().__init__(epoch, "jobs", remembered=deletions, floor=floor)
        self._records: dict[JobKey, RecordSummary] = {}
        self._by_owner: dict[Owner, dict[JobKey, RecordSummary]] = {}  # in the order of changes, too
        self._by_mark: dict[str, JobKey] = {}
        self._by_lineage: dict[Lineage, tuple[JobKey, ...]] = {}
        self._watched: dict[JobKey, None] = {}
        for record in records:
            self._enter(record)
        self._in_order = sorted(self._records, key=sort_key)

    # ------------------------------------------------------------------------------------------ reading

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

    def line(self, owner: Owner, key: str, attempt: int | None = None) -> list[JobRecord]:
        """All attempts of a key, or one; of the account's one uid where the owner names it."""
        keys = self._by_lineage.get(lineage(owner, key), ())
        return [
            unpack(self._records[k])
            for k in keys
            if owner.account_uid in ("", k.owner.account_uid) and attempt in (None, k.attempt)
        ]

    def has_records(self, line: Lineage) -> bool:
        return line in self._by_lineage

    def watched(self) -> list[JobRecord]:
        """Those that polls must look for."""
        return [unpack(self._records[key]) for key in self._watched]

    def listed(self, owner: Owner | None, after: SortKey | None = None) -> Iterator[RecordSummary]:
        """All records, or one owner's, in the order of lists, from behind a sort key.

        To be read without a pause in which a record may come or go.
        """
        start = 0 if after is None else bisect_right(self._in_order, after, key=sort_key)
        if owner is not None:
            start = max(start, bisect_left(self._in_order, sort_key(JobKey(owner, "", 0)), key=sort_key))
        for position in range(start, len(self._in_order)):
            key = self._in_order[position]
            if owner not in (None, key.owner):
                return
            yield self._records[key]

    def since_of(self, owner: Owner, number: int) -> Iterator[RecordChange]:
        """As `since`, of one owner's; removals are everybody's."""
        return self._with_removals(number, _changed_after(number, self._by_owner.get(owner, {}).values()))

    def _changed_since(self, number: int) -> Iterator[RecordChange]:
        return _changed_after(number, self._records.values())

    # ------------------------------------------------------------------------------------------ writing

    def publish(self, saved: Collection[JobRecord], forgotten: Collection[tuple[int, JobKey]]) -> None:
        """Show what was committed."""
        for number, key in forgotten:
            self._drop(number, key)
        for record in saved:
            if record.key not in self._records:
                insort(self._in_order, record.key, key=sort_key)
            self._enter(pack(record))
        self._announce()

    def _enter(self, record: RecordSummary) -> None:
        key = record.key
        if self._records.pop(key, None) is None:
            self._by_mark[record.mark] = key
            line = lineage(key.owner, key.key)
            self._by_lineage[line] = (*self._by_lineage.get(line, ()), key)
        self._records[key] = record
        own = self._by_owner.setdefault(key.owner, {})
        own.pop(key, None)
        own[key] = record
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
        del self._in_order[bisect_left(self._in_order, sort_key(key), key=sort_key)]
        del self._by_mark[record.mark]
        own = self._by_owner[key.owner]
        del own[key]
        if not own:
            del self._by_owner[key.owner]
        self._watched.pop(key, None)
        line = lineage(key.owner, key.key)
        rest = tuple(other for other in self._by_lineage.pop(line) if other != key)
        if rest:
            self._by_lineage[line] = rest
        self._remember_removal(record, number)


def _changed_after(number: int, records: Reversible[RecordSummary]) -> Iterator[RecordChange]:
    newest_first = list(takewhile(lambda record: record.revision > number, reversed(records)))
    return (TableChange(record, record.revision) for record in reversed(newest_first))
