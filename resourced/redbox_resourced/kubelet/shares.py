"""How many logs, sessions and connections are open: so many of all, and so many of a namespace.

So one namespace leaves room for the others: all share resourced's memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class TooManyOpen(Exception):
    """No more may be open now; `opennow` says how many of what are."""

    def __init__(self, opennow: str) -> None:
        super().__init__(f"{opennow} are open now: end one of them, or retry later")


@dataclass(frozen=True)
class NamespaceShares:
    """Those of one kind."""

    kind: str
    most: int
    of_a_namespace: int
    now: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def taken(self, namespace: str, count: int = 1) -> Iterator[None]:
        """Raises TooManyOpen. `count`: of one that takes the memory of several."""
        if self.now.total() + count > self.most:
            raise TooManyOpen(f"{self.now.total()} {self.kind}")
        if self.now[namespace] + count > self.of_a_namespace:
            raise TooManyOpen(f"{self.now[namespace]} {self.kind} of namespace {namespace}")
        self.now[namespace] += count
        try:
            yield
        finally:
            self.now[namespace] -= count
            if not self.now[namespace]:
                del self.now[namespace]
