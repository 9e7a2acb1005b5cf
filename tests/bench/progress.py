"""Which benchmarks are left to measure, and how long they take: from the stored rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.benchmark import Benchmark
from tests.bench.effort import is_short

StoredRows = Mapping[str, Mapping[str, Any]]
"""Rows of the results file by name."""


def is_clean(commit: str) -> bool:
    """Whether the commit tells all of what was measured."""
    return commit != "unknown" and not commit.endswith("-dirty")


def left_to_measure(wanted: Sequence[Benchmark], stored: StoredRows, commit: str) -> tuple[Benchmark, ...]:
    """All but those of which every row was measured on this commit."""
    return tuple(one for one in wanted if not (is_clean(commit) and _is_measured(one, stored, commit)))


def _is_measured(benchmark: Benchmark, stored: StoredRows, commit: str) -> bool:
    rows = [stored.get(figure.name, {}) for figure in benchmark.figures]
    return all(row.get("value") is not None and row["conditions"].get("commit") == commit for row in rows)


def expected_s(benchmark: Benchmark, stored: StoredRows) -> float:
    """What it took the last time; where it was never measured, about what it takes."""
    for figure in benchmark.figures:
        took = stored.get(figure.name, {}).get("conditions", {}).get("took_s")
        if took is not None:
            return float(took)
    return (is_short() and benchmark.short_s) or benchmark.takes_s


def readable_time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
