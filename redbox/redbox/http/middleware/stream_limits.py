"""How many answers of long breath (followed logs, watches, downloads) one user and all together may hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from redbox.core.domain import Caller
from redbox.http.answers.problems import TooMany


@dataclass
class StreamLimits:
    """Counts what is open."""

    per_user: int = 2000
    in_all: int = 20000
    _open: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def one_more(self, caller: Caller) -> Iterator[None]:
        """Hold a place as long as the stream lives."""
        name = caller.name
        if self._open[name] >= self.per_user or self.open >= self.in_all:
            raise TooMany(f"{name} has {self._open[name]} streams open; close some", retry_after=5)
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]

    @property
    def open(self) -> int:
        """How many are open."""
        return self._open.total()
