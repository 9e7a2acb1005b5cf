"""Limits on open streams (followed logs, watches, downloads, uploads), by user and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from redbox.core.domain import Caller
from redbox.http.answers.problems import TooManyRequestsProblem


@dataclass
class StreamLimits:
    """Counts open streams."""

    per_user: int = 2000
    in_all: int = 20000
    _open: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def reserve(self, caller: Caller) -> Iterator[None]:
        """Hold a place as long as the stream lives."""
        name = caller.name
        if self._open[name] >= self.per_user or self.open >= self.in_all:
            raise TooManyRequestsProblem(
                f"{name} has {self._open[name]} streams open; close some", retry_after=5
            )
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]

    @property
    def open(self) -> int:
        return self._open.total()
