"""The page of figures: it hides nothing, and is made from what is stored beside it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest

from tests.bench.benchmark import Benchmark, Trial, all_benchmarks
from tests.bench.publish import PAGE, STORED, page, published
from tests.bench.rows import Figure, Target, failed_row, row_of

SLOW = Figure("slow", "a slow thing", "s", Target("value", "<=", 1))
FAST = Figure("fast", "a fast thing", "s", Target("ratio", "<=", 2))
NEVER = Figure("never", "a thing that nobody measured", "s")
CONDITIONS = {"date": "2026-11-21", "commit": "abc", "rounds": 3, "load_before": 0.1}


def bench(*figures: Figure) -> Benchmark:
    return Benchmark("played", figures, lambda _: nullcontext(Trial(dict)), 3, "bare")


def shown_of(*rows: Any) -> str:
    stored = {"machine": "Measured on paper.", "rows": [published(row.as_json()) for row in rows]}
    return page(stored, [bench(SLOW, FAST, NEVER)])


def rounds(figure: Figure, *values: float) -> list[dict[str, float]]:
    return [{figure.name: value} for value in values]


def test_a_page_shows_the_median_the_spread_the_baseline_and_what_is_missed() -> None:
    slow = row_of(SLOW, rounds(SLOW, 1, 3, 2), [], None, CONDITIONS)
    fast = row_of(FAST, rounds(FAST, 0.5, 0.5, 0.5), rounds(FAST, 0.25), "bare", CONDITIONS)
    text = shown_of(slow, fast)
    assert "| a slow thing | 2 s<br>1 to 3 |  |  | value <= 1: **missed** |" in text
    assert "| a fast thing | 0.5 s<br>0.5 to 0.5 | 0.25 s, bare | 2 | ratio <= 2: holds |" in text


def test_what_failed_and_what_was_never_measured_are_named() -> None:
    text = shown_of(failed_row(SLOW, "it broke", CONDITIONS))
    assert "| a slow thing | failed |" in text
    assert text.endswith("## Not measured yet\n\n- `fast`\n- `never`\n")


@pytest.mark.skipif(not STORED.exists(), reason="nothing is published yet")
def test_the_published_page_is_made_from_the_published_rows() -> None:
    assert PAGE.read_text() == page(json.loads(STORED.read_text()), all_benchmarks()), "run `make figures`"
