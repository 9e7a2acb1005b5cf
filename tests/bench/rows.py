"""What a benchmark ends up as: rows, for build/bench.json and the terminal. Pure; measuring is elsewhere."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

Conditions = Mapping[str, Any]
Samples = Sequence[Mapping[str, float]]
"""One mapping, from figure to value, for each round."""

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Target:
    """A promise: of the value itself, of its ratio to the baseline, or of its difference from it."""

    of: Literal["value", "ratio", "difference"]
    relation: Literal["<=", ">="]
    bound: float

    def __str__(self) -> str:
        return f"{self.of} {self.relation} {self.bound:g}"

    def holds(self, value: float, baseline: float | None) -> bool:
        if self.of == "value":
            return _COMPARE[self.relation](value, self.bound)
        if baseline is None:
            return False
        seen = value / baseline if self.of == "ratio" else value - baseline
        return _COMPARE[self.relation](seen, self.bound)


@dataclass(frozen=True)
class Figure:
    """One number that a benchmark yields in every round."""

    name: str
    what: str
    unit: str
    target: Target | None = None


@dataclass(frozen=True)
class Row:
    """One line of build/bench.json. A benchmark that failed has no value, and says why in its conditions."""

    name: str
    what: str
    unit: str
    value: float | None
    baseline: float | None
    baseline_name: str | None
    ratio: float | None
    target: str | None
    holds: bool | None
    conditions: Conditions

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def row_of(
    figure: Figure, measured: Samples, compared: Samples, baseline_name: str | None, conditions: Conditions
) -> Row:
    """Make a row of the medians of all rounds; each round's values are kept among the conditions."""
    values = [sample[figure.name] for sample in measured]
    baselines = [sample[figure.name] for sample in compared if figure.name in sample]
    value = median(values)
    baseline = median(baselines) if baselines else None
    return Row(
        name=figure.name,
        what=figure.what,
        unit=figure.unit,
        value=value,
        baseline=baseline,
        baseline_name=baseline_name if baselines else None,
        ratio=value / baseline if baseline else None,
        target=str(figure.target) if figure.target else None,
        holds=figure.target.holds(value, baseline) if figure.target else None,
        conditions={**conditions, "values": values, "baselines": baselines},
    )


def failed_row(figure: Figure, reason: str, conditions: Conditions) -> Row:
    return Row(
        name=figure.name,
        what=figure.what,
        unit=figure.unit,
        value=None,
        baseline=None,
        baseline_name=None,
        ratio=None,
        target=str(figure.target) if figure.target else None,
        holds=False,
        conditions={**conditions, "failure": reason},
    )


def readable(value: float, unit: str = "") -> str:
    """Three digits of it, as people read them; a unit of `1` is not shown."""
    unit = unit.removeprefix("1")
    return (f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.3g} {unit}").strip()


def percentile(values: Sequence[float], percent: float) -> float:
    """Take the smallest value that at least `percent` of the values do not exceed."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]
