"""What is left to measure, and how long that takes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tests.bench.benchmark import Benchmark, Trial, all_benchmarks
from tests.bench.effort import VARIABLE, sized
from tests.bench.progress import expected_s, left_to_measure, readable_time
from tests.bench.rows import Figure

SHORT_FORM_S = 15 * 60


def bench(name: str, *figures: str) -> Benchmark:
    made = tuple(Figure(figure, figure, "s") for figure in figures)
    return Benchmark(name, made, lambda _: nullcontext(Trial(dict)), 3, None, takes_s=300, short_s=30)


def row(value: float | None, commit: str, **conditions: Any) -> dict[str, Any]:
    return {"value": value, "conditions": {"commit": commit, **conditions}}


ONE, TWO = bench("one", "a", "b"), bench("two", "c")


@pytest.mark.parametrize(
    ("stored", "commit"),
    [
        ({}, "abc"),
        ({"a": row(1, "abc")}, "abc"),
        ({"a": row(1, "abc"), "b": row(None, "abc")}, "abc"),
        ({"a": row(1, "abc"), "b": row(1, "older")}, "abc"),
        ({"a": row(1, "abc-dirty"), "b": row(1, "abc-dirty")}, "abc-dirty"),
    ],
    ids=["never measured", "a row missing", "a row failed", "another commit", "a changed checkout"],
)
def test_a_benchmark_is_left_unless_all_of_its_rows_are_of_this_commit(
    stored: dict[str, Any], commit: str
) -> None:
    assert left_to_measure((ONE,), stored, commit) == (ONE,)


def test_a_run_that_was_stopped_goes_on_after_the_last_benchmark_that_it_measured() -> None:
    stored = {"a": row(1, "abc"), "b": row(2, "abc")}
    assert left_to_measure((ONE, TWO), stored, "abc") == (TWO,)


def test_it_is_expected_to_take_what_it_took_the_last_time() -> None:
    assert expected_s(ONE, {}) == 300
    assert expected_s(ONE, {"a": row(1, "older", took_s=120.5)}) == 120.5


def test_the_short_form_has_sizes_and_estimates_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    assert expected_s(ONE, {}) == 30
    assert sized(200, 20) == 20


def test_the_short_form_has_benchmarks_with_a_target_and_keeps_its_time() -> None:
    known = all_benchmarks()
    assert [
        one.name for one in known if one.is_in_short_form and not any(it.target for it in one.figures)
    ] == []
    assert sum(one.short_s for one in known) <= SHORT_FORM_S


@pytest.mark.parametrize(("seconds", "text"), [(45, "45 s"), (99, "99 s"), (630, "10 min")])
def test_times_are_rounded_as_people_say_them(seconds: float, text: str) -> None:
    assert readable_time(seconds) == text
