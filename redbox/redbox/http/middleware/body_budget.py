"""The bytes of request bodies that are in memory at once, limited by caller and in total.

A body is held whole until its request is answered, and its caller decides how many are sent at once. The
bytes that have arrived are counted, not those of Content-Length: a caller that announces much and sends
nothing takes nothing from others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from redbox.http.answers.problems import TooManyRequestsProblem

PER_CALLER = 64 << 20
IN_ALL = 512 << 20
LARGEST_PER_CALLER = 8  # bodies of limits.body_bytes, where that is larger than its default


@dataclass
class BodyBudget:
    """Counts the bytes in memory."""

    per_caller: int = PER_CALLER
    in_all: int = IN_ALL
    _held: Counter[str] = field(default_factory=Counter)

    @classmethod
    def for_bodies_of(cls, largest: int) -> BodyBudget:
        """Return a budget in which several bodies of the largest size fit."""
        per_caller = max(PER_CALLER, LARGEST_PER_CALLER * largest)
        return cls(per_caller, max(IN_ALL, per_caller))

    def take(self, caller: str, count: int) -> None:
        """Reserve `count` bytes; raises TooManyRequestsProblem."""
        if self._held[caller] + count > self.per_caller:
            raise TooManyRequestsProblem(
                f"{caller} has too many bytes of requests under way; send fewer at once", retry_after=5
            )
        if self.held + count > self.in_all:
            raise TooManyRequestsProblem("red-box has too many bytes of requests under way", retry_after=5)
        self._held[caller] += count

    def give_back(self, caller: str, count: int) -> None:
        self._held[caller] -= count
        if not self._held[caller]:
            del self._held[caller]

    @property
    def held(self) -> int:
        return self._held.total()
