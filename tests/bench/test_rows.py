"""What a row says of its measurements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.rows import Figure, Target, failed_row, percentile, row_of

RATE = Figure("rate", "how fast", "jobs/s", Target("ratio", ">=", 0.9))


def test_a_row_holds_the_medians_of_its_rounds_and_their_ratio() -> None:
    row = row_of(RATE, [{"rate": 10}, {"rate": 90}, {"rate": 20}], [{"rate": 40}], "bare", {"cores": 2})
    assert (row.value, row.baseline, row.ratio, row.baseline_name) == (20, 40, 0.5, "bare")
    assert row.conditions == {"cores": 2, "values": [10, 90, 20], "baselines": [40]}


def test_a_row_without_a_baseline_has_no_ratio() -> None:
    row = row_of(Figure("rate", "how fast", "jobs/s"), [{"rate": 10}], [], "bare", {})
    assert (row.baseline, row.baseline_name, row.ratio, row.target, row.holds) == (None,) * 5


@pytest.mark.parametrize(
    ("target", "holds"),
    [
        (Target("value", "<=", 105), True),
        (Target("value", "<=", 104), False),
        (Target("difference", "<=", 5), True),
        (Target("difference", "<=", 4.9), False),
        (Target("ratio", ">=", 1.05), True),
        (Target("ratio", ">=", 1.06), False),
    ],
    ids=str,
)
def test_a_target_is_of_the_value_its_difference_or_its_ratio(target: Target, *, holds: bool) -> None:
    assert row_of(Figure("x", "x", "ms", target), [{"x": 105}], [{"x": 100}], "bare", {}).holds is holds


def test_a_comparison_without_a_baseline_does_not_hold() -> None:
    assert row_of(RATE, [{"rate": 10}], [], None, {}).holds is False


def test_what_failed_does_not_hold_and_says_why() -> None:
    row = failed_row(RATE, "slurmctld is away", {})
    assert (row.value, row.holds, row.conditions["failure"]) == (None, False, "slurmctld is away")


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_a_percentile_is_one_of_the_values(percent: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], percent) == expected


@given(st.lists(st.floats(allow_nan=False), min_size=1), st.floats(min_value=0, max_value=100))
def test_at_least_that_percentage_does_not_exceed_a_percentile(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
