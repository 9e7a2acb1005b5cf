"""Things with revisions, `<epoch>.<n>`: where a list was made or a watch was interrupted, and resumes."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile
from typing import Generic, TypeVar

from redbox.jobs.errors import Gone

ThingT = TypeVar("ThingT")
NUMBER = re.compile(r"[0-9]{1,18}")
FROM_THE_BEGINNING = -1


@dataclass(frozen=True, slots=True)
class TableChange(Generic[ThingT]):
    """A thing that changed, or was removed."""

    thing: ThingT
    revision: int
    dropped: bool = False


class RevisionedTable(Generic[ThingT]):
    """Each change has the next number; of the removals a limited number is remembered."""

    def __init__(self, epoch: str, things: str, *, remembered: int, floor: int = 0) -> None:
        self.epoch = epoch
        self.moved = asyncio.Event()  # set, and replaced, at each change
        self.number = floor
        self._things = things
        self._floor = floor  # removals up to here are forgotten
        self._removed: deque[TableChange[ThingT]] = deque(maxlen=remembered)

    @property
    def revision(self) -> str:
        return f"{self.epoch}.{self.number}"

    def number_of(self, revision: str | None) -> int:
        """The number to resume a watch from; Gone if changes since then are not remembered, or never were."""
        if revision is None:
            return FROM_THE_BEGINNING
        its_epoch, _, digits = revision.partition(".")
        number = int(digits) if NUMBER.fullmatch(digits) else FROM_THE_BEGINNING
        if its_epoch != self.epoch or not self._floor <= number <= self.number:
            raise Gone(
                f"Revision {revision[:100]} is too old or not of this red-box: "
                f"list the {self._things}, and watch from there."
            )
        return number

    def since(self, number: int) -> Iterator[TableChange[ThingT]]:
        """What has changed since, oldest first; Gone where removals since then are forgotten.

        It is read piece by piece, and later changes are not in it.
        """
        return self._with_removals(number, self._changed_since(number))

    def _with_removals(
        self, number: int, changed: Iterable[TableChange[ThingT]]
    ) -> Iterator[TableChange[ThingT]]:
        if -1 < number < self._floor:
            raise Gone(
                f"Too slow: more {self._things} were removed than are remembered. "
                f"List the {self._things}, and watch from there."
            )
        newest_first = takewhile(lambda gone: gone.revision > number, reversed(self._removed))
        removed = list(newest_first)[::-1] if number >= 0 else []
        return merge(changed, removed, key=lambda change: change.revision)

    def _changed_since(self, number: int) -> Iterable[TableChange[ThingT]]:
        """Oldest first, and without later changes."""
        raise NotImplementedError

    def _remember_removal(self, thing: ThingT, number: int) -> None:
        if len(self._removed) == self._removed.maxlen:
            self._floor = self._removed[0].revision
        self._removed.append(TableChange(thing, number, dropped=True))

    def _announce(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()
