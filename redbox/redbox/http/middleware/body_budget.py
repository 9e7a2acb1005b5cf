"""How many bytes of requests' bodies are held at once, of one caller and of all.

A body is held whole until its request is answered, and its caller decides how many are sent at once. So the
bytes that have come are counted, not those that are announced: who announces much and sends nothing takes
nothing from others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from redbox.http.answers.problems import TooMany

PER_CALLER = 64 << 20
IN_ALL = 512 << 20
LARGEST_PER_CALLER = 8  # where limits.body_bytes is larger than its default


@dataclass
class BodyBudget:
    """Counts what is held."""

    per_caller: int = PER_CALLER
    in_all: int = IN_ALL
    _held: Counter[str] = field(default_factory=Counter)
    _held_in_all: int = 0

    @classmethod
    def for_bodies_of(cls, largest: int) -> BodyBudget:
        """Some of the largest always find room."""
        per_caller = max(PER_CALLER, LARGEST_PER_CALLER * largest)
        return cls(per_caller, max(IN_ALL, per_caller))

    def take(self, caller: str, count: int) -> None:
        """Hold so many more; raises TooMany."""
        if self._held[caller] + count > self.per_caller:
            raise TooMany(
                f"{caller} has too many bytes of requests under way; send fewer at once", retry_after=5
            )
        if self._held_in_all + count > self.in_all:
            raise TooMany("red-box has too many bytes of requests under way", retry_after=5)
        self._held[caller] += count
        self._held_in_all += count

    def give_back(self, caller: str, count: int) -> None:
        self._held[caller] -= count
        self._held_in_all -= count
        if not self._held[caller]:
            del self._held[caller]

    @property
    def held(self) -> int:
        """How many bytes are held."""
        return self._held_in_all
