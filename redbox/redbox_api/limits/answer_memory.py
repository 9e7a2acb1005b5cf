"""The memory that answers of several red-boxes have together, from the first byte until the last row.

Each answer has bounds of its own, but a red-box may have several under way and let none end, and others may
do so with it. So they divide a common memory as the ports of a switch divide its buffer: a holder may have as
much as is free. One alone has half, n have an equal part each, and as much again is left to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from math import inf

from redbox_api.limits.answer_limits import OutOfBounds

OBJECTS = 30
"""Bytes in memory for each byte of a parsed answer."""


class CommonMemory:
    """In bytes."""

    def __init__(self, most: float = inf, whose: str = "") -> None:
        """`whose` is the holders' name in the sentence of a refusal."""
        self.most = most
        self.whose = whose
        self.held: Counter[Hashable] = Counter()

    def take(self, holder: Hashable, size: int) -> None:
        """Raise OutOfBounds if the holder would have more than is free then."""
        total = self.held.total() + size
        if self.held[holder] + size > self.most - total:
            raise OutOfBounds(
                f"answers of {self.whose} fill the {self.most / 2**20:g} MiB that they have together: "
                "this is asked for again"
            )
        self.held[holder] += size

    def give_back(self, holder: Hashable, size: int) -> None:
        self.held[holder] -= size
        if not self.held[holder]:
            del self.held[holder]


class HeldAnswer:
    """What one answer has of the common memory."""

    def __init__(self, common: CommonMemory, holder: Hashable) -> None:
        self._common = common
        self._holder = holder
        self._size = 0

    def resize(self, size: int) -> None:
        """It is of so many bytes now; raises OutOfBounds."""
        if size > self._size:
            self._common.take(self._holder, size - self._size)
        elif size < self._size:
            self._common.give_back(self._holder, self._size - size)
        self._size = size


class AnswerMemory:
    """The part of one holder; by default without a bound."""

    def __init__(self, common: CommonMemory | None = None, holder: Hashable = "") -> None:
        self._common = common or CommonMemory()
        self._holder = holder

    @contextmanager
    def answer(self) -> Iterator[HeldAnswer]:
        """All that it has is given back at the end of the block."""
        held = HeldAnswer(self._common, self._holder)
        try:
            yield held
        finally:
            held.resize(0)
