"""Something that callers share, limited by caller and in total: open streams, bytes of request bodies.

A body is held whole until its request is answered, and its caller decides how many are sent at once. The
bytes that have arrived are counted, not those of Content-Length: a caller that announces much and sends
nothing takes nothing from others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from redbox.http.answers.problems import TooManyRequestsProblem

BODY_BYTES_PER_CALLER = 64 << 20
BODY_BYTES = 512 << 20
LARGEST_BODIES = 8  # of one caller, where limits.body_bytes is larger than its default


@dataclass
class CallerBudget:
    """Counts what each caller holds."""

    what: str
    per_caller: int
    in_all: int
    _held: Counter[str] = field(default_factory=Counter)

    def take(self, caller: str, count: int = 1) -> None:
        """Reserve so many; raises TooManyRequestsProblem."""
        if self._held[caller] + count > self.per_caller:
            detail = f"{caller} has too many {self.what} (limit: {self.per_caller}); retry when some end"
            raise TooManyRequestsProblem(detail, retry_after=5)
        if self.held + count > self.in_all:
            raise TooManyRequestsProblem(f"red-box has too many {self.what}; retry later", retry_after=5)
        self._held[caller] += count

    def give_back(self, caller: str, count: int = 1) -> None:
        self._held[caller] -= count
        if not self._held[caller]:
            del self._held[caller]

    @contextmanager
    def reserve(self, caller: str) -> Iterator[None]:
        self.take(caller)
        try:
            yield
        finally:
            self.give_back(caller)

    @property
    def held(self) -> int:
        return self._held.total()


def streams_budget(per_user: int, in_all: int) -> CallerBudget:
    """For followed logs, watches, downloads and uploads."""
    return CallerBudget("streams open", per_user, in_all)


def bodies_budget(largest: int) -> CallerBudget:
    """For bytes of bodies in memory; several bodies of the largest size fit."""
    per_caller = max(BODY_BYTES_PER_CALLER, LARGEST_BODIES * largest)
    what = "bytes of requests under way"
    return CallerBudget(what, per_caller, max(BODY_BYTES, per_caller))
