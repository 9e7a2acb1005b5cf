"""Keys that were deleted before their job existed, in memory.

A cancel may overtake its submit: the tombstone then refuses the submit. The tombstones of an owner are
limited, so that a caller cannot fill memory and journal with keys that never existed, and so are those that
an operator makes for a namespace, whose users name accounts as they please. A tombstone for all attempts of a
key that has records does not count: there are no more of them than records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import islice

from redbox.core.domain import JobKey, Owner
from redbox.jobs.record.record import ALL_ATTEMPTS, Lineage, Tombstone, lineage, sort_key

Share = tuple[str, ...]


class Tombstones:
    """All tombstones; only the record store adds and removes them, after the journal."""

    def __init__(self, tombstones: Iterable[Tombstone], has_records: Callable[[Lineage], bool]) -> None:
        self._has_records = has_records
        self._by_lineage: dict[Lineage, tuple[Tombstone, ...]] = {}
        self._counted: dict[Share, dict[Tombstone, None]] = {}  # the oldest first
        for tombstone in sorted(tombstones, key=lambda tombstone: tombstone.made_at):
            self.add(tombstone)

    def covering(self, key: JobKey) -> Tombstone | None:
        stones = self._by_lineage.get(lineage(key.owner, key.key), ())
        return next((stone for stone in stones if stone.covers(key)), None)

    def surplus(self, limit: int, newest: Tombstone) -> tuple[Tombstone, ...]:
        """The oldest that are too many, of those that count together with this one, once it is added."""
        if not self._counts(newest):
            return ()
        counted = self._counted.get(_share(newest.owner), {})
        return tuple(islice(counted, max(0, len(counted) + 1 - limit)))

    def older_than(self, now: datetime, age_s: float) -> list[Tombstone]:
        limit = now - timedelta(seconds=age_s)
        return [stone for stones in self._by_lineage.values() for stone in stones if stone.made_at < limit]

    def add(self, tombstone: Tombstone) -> None:
        line = lineage(tombstone.owner, tombstone.key)
        for stone in self._by_lineage.get(line, ()):
            if sort_key(stone) == sort_key(tombstone):
                self.remove(stone)
        self._by_lineage[line] = (*self._by_lineage.get(line, ()), tombstone)
        if self._counts(tombstone):
            self._counted.setdefault(_share(tombstone.owner), {})[tombstone] = None

    def remove(self, tombstone: Tombstone) -> None:
        line = lineage(tombstone.owner, tombstone.key)
        stones = self._by_lineage.pop(line, ())
        rest = tuple(stone for stone in stones if sort_key(stone) != sort_key(tombstone))
        if rest:
            self._by_lineage[line] = rest
        counted = self._counted.get(_share(tombstone.owner), {})
        for gone in stones:
            if gone not in rest:
                counted.pop(gone, None)
        if not counted:
            self._counted.pop(_share(tombstone.owner), None)

    def _counts(self, tombstone: Tombstone) -> bool:
        has_records = self._has_records(lineage(tombstone.owner, tombstone.key))
        return tombstone.attempt != ALL_ATTEMPTS or not has_records


def _share(owner: Owner) -> Share:
    """The group that is counted together; an owner that an operator names has no account uid."""
    place = (owner.cluster, owner.namespace)
    return (*place, owner.account) if owner.account_uid else place
