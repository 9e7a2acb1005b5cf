"""How a benchmark is written down and found.

A module `bench_*.py` beside this one holds functions like

    @benchmark(Figure("squeue-0", "squeue with nothing queued", "ms"), takes_s=40)
    @contextmanager
    def squeue_with_nothing_queued(bed: Bed) -> Iterator[Trial]:
        yield Trial(measure=...)

What comes before and after the `yield` prepares and clears away; a trial's measurements return one value for
each figure and are repeated, in turn with those of the baseline. With `@benchmark(..., within=installed)` the
function gets what `installed(bed)` yields in place of the bed: benchmarks that follow each other share it.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import tests.bench
from redbox_bed.bed import Bed
from tests.bench.rows import Figure

Measure = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class Trial:
    """What is measured, what it is compared with, and anything a reader of the row must know."""

    measure: Measure
    baseline: Measure | None = None
    notes: Mapping[str, str | float] | None = None


Prepare = Callable[[Any], AbstractContextManager[Trial]]
Installed = Callable[[Bed], AbstractContextManager[Any]]
"""What several benchmarks need on the bed, and takes long to install."""


@dataclass(frozen=True)
class Benchmark:
    """Some figures that come from one measurement."""

    name: str
    figures: tuple[Figure, ...]
    prepare: Prepare
    rounds: int
    baseline_name: str | None
    takes_s: float = 60
    """About how long it takes, for the estimate before it was ever measured here."""
    short_s: float = 0
    """The same in the short form; 0: it is no part of it."""
    warm_up: bool = True
    """Whether a first round that does not count comes before the others."""
    within: Installed | None = None
    needs_bed: bool = True
    """Else `prepare` is given whatever is there, and does not look at it."""

    @property
    def is_in_short_form(self) -> bool:
        """Those with a target are, but for large numbers of things, and for what others show too."""
        return self.short_s > 0

    def is_called(self, name: str) -> bool:
        """By its own name, that of its group, which is in front of it, or that of a figure."""
        in_group = self.name.startswith(f"{name}-")
        return name == self.name or in_group or name in {figure.name for figure in self.figures}


_known: list[Benchmark] = []


def benchmark(
    *figures: Figure,
    takes_s: float,
    short_s: float = 0,
    rounds: int = 5,
    baseline_name: str | None = None,
    warm_up: bool = True,
    within: Installed | None = None,
    needs_bed: bool = True,
) -> Callable[[Prepare], Prepare]:
    """Enter a benchmark, under its function's name with dashes, in the list that the runner goes through.

    `takes_s` and `short_s` are seconds on a quiet machine of two cores, with what it starts and takes away.
    """

    def enter(prepare: Prepare) -> Prepare:
        name = prepare.__name__.replace("_", "-")
        _known.append(
            Benchmark(
                name,
                figures,
                prepare,
                rounds,
                baseline_name,
                takes_s,
                short_s,
                warm_up,
                within,
                needs_bed=needs_bed,
            )
        )
        return prepare

    return enter


def all_benchmarks() -> tuple[Benchmark, ...]:
    """Import every `bench_*.py`, and list what they entered: module by module, whichever imports another."""
    for name in _modules():
        importlib.import_module(f"tests.bench.{name}")
    return tuple(sorted(_known, key=lambda one: one.prepare.__module__))


def _modules() -> Iterator[str]:
    found = (module.name for module in pkgutil.iter_modules(tests.bench.__path__))
    return (name for name in found if name.startswith("bench_"))
