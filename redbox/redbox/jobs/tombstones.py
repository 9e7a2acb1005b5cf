"""Keys that were deleted before their job came to be, in memory.

A cancel may overtake its submit: the tombstone then refuses the submit when it comes. Tombstones are
limited per owner, so that nobody fills the journal with keys that never were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from redbox.domain import JobKey, Owner
from redbox.jobs.records import Lineage, Tombstone, lineage


class Tombstones:
    """All of them; only the ledger adds and takes away, after the journal has."""

    def __init__(self, tombstones: Iterable[Tombstone]) -> None:
        self._by_lineage: dict[Lineage, tuple[Tombstone, ...]] = {}
        self._per_owner: Counter[tuple[str, str, str]] = Counter()
        for tombstone in tombstones:
            self.add(tombstone)

    def covering(self, key: JobKey) -> Tombstone | None:
        stones = self._by_lineage.get(lineage(key.owner, key.key), ())
        return next((stone for stone in stones if stone.covers(key)), None)

    def held_by(self, owner: Owner) -> int:
        """How many an owner has, whatever its account's uid."""
        return self._per_owner[_names(owner)]

    def older_than(self, now: datetime, age_s: float) -> list[Tombstone]:
        limit = now - timedelta(seconds=age_s)
        return [stone for stones in self._by_lineage.values() for stone in stones if stone.made_at < limit]

    def add(self, tombstone: Tombstone) -> None:
        line = lineage(tombstone.owner, tombstone.key)
        others = tuple(s for s in self._by_lineage.get(line, ()) if not _same_place(s, tombstone))
        self._per_owner[_names(tombstone.owner)] += 1 + len(others) - len(self._by_lineage.get(line, ()))
        self._by_lineage[line] = (*others, tombstone)

    def remove(self, tombstone: Tombstone) -> None:
        line = lineage(tombstone.owner, tombstone.key)
        stones = self._by_lineage.pop(line, ())
        rest = tuple(stone for stone in stones if not _same_place(stone, tombstone))
        self._per_owner[_names(tombstone.owner)] -= len(stones) - len(rest)
        if rest:
            self._by_lineage[line] = rest


def _names(owner: Owner) -> tuple[str, str, str]:
    return (owner.cluster, owner.namespace, owner.account)


def _same_place(one: Tombstone, other: Tombstone) -> bool:
    return (one.owner, one.key, one.attempt) == (other.owner, other.key, other.attempt)
