"""The bed as each benchmark finds it: bare, or with what it and the one before it both need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from redbox_bed.bed import Bed
from tests.bench.benchmark import Benchmark, Installed


class Stage:
    """`clear` takes away what a demo or a benchmark left: of two controllers one waits, or both work."""

    def __init__(self, bed: Bed | None, clear: Callable[[Bed], None]) -> None:
        self._bed = bed
        self._clear = clear
        self._stack = ExitStack()
        self._within: Installed | None = None
        self._installed: Any = bed

    @contextmanager
    def set_for(self, benchmark: Benchmark) -> Iterator[Any]:
        """What this one is prepared with; after a failure nothing is shared with the next."""
        try:
            if benchmark.within is None or benchmark.within is not self._within:
                self.close()
                if self._bed is not None:
                    self._clear(self._bed)
                if self._bed is not None and benchmark.within is not None:
                    self._installed = self._stack.enter_context(benchmark.within(self._bed))
                    self._within = benchmark.within
            yield self._installed
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._within, self._installed = None, self._bed
        self._stack.close()
