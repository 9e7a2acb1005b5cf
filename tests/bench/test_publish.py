"""The page of figures: it hides nothing, and is made from what is stored beside it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.bench.benchmark import Benchmark, Trial, all_benchmarks
from tests.bench.picture import BAD, INK, svg, times_as_good
from tests.bench.publish import PAGE, PICTURE, PUBLISHED, STORED, is_quiet, page, picture, published, verdict
from tests.bench.rows import Figure, Target, failed_row, row_of

SVG = "{http://www.w3.org/2000/svg}"
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


def test_what_was_measured_beside_others_is_not_published() -> None:
    assert is_quiet({"conditions": {"cores": 2, "load_before": 3.8}})
    assert not is_quiet({"conditions": {"cores": 2, "load_before": 35.6}})


def test_the_short_form_is_never_published() -> None:
    conditions = {"cores": 2, "load_before": 0.1}
    assert verdict({"conditions": conditions}) == PUBLISHED
    assert verdict({"conditions": {**conditions, "short": True}}) != PUBLISHED


@pytest.mark.parametrize(
    ("unit", "ratio", "better"), [("jobs/s", 0.5, 0.5), ("MB/s", 2, 2), ("ms", 2, 0.5), ("MiB", 0.25, 4)]
)
def test_more_of_a_rate_is_better_and_less_of_anything_else(unit: str, ratio: float, better: float) -> None:
    assert times_as_good({"unit": unit, "ratio": ratio}) == better


def test_what_is_worse_than_its_baseline_is_drawn_to_the_left_and_what_is_called_odd_is_escaped() -> None:
    drawn = ElementTree.fromstring(svg([("a <slow> thing", {"unit": "s", "ratio": 2.0})]))
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert texts[-2:] == ["a <slow> thing", "0.5 x"]
    (bar,) = [rect for rect in drawn.iter(f"{SVG}rect") if rect.get("fill") == BAD]
    middle = next(line for line in drawn.iter(f"{SVG}line") if line.get("stroke") == INK)
    assert float(bar.attrib["x"]) < float(middle.attrib["x1"])


def test_the_published_page_is_made_from_the_published_rows() -> None:
    stored = json.loads(STORED.read_text())
    assert PAGE.read_text() == page(stored, all_benchmarks()), "run `make figures`"
    assert PICTURE.read_text() == picture(stored, all_benchmarks()), "run `make figures`"
