"""Draws figures beside their baselines: a bar to the right where Red Box is better, to the left where not.

The scale is of factors: twice as good is as far to the right as half as good is to the left.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from tests.bench.rows import readable

ROW, TOP, LABEL, HALF, NUMBER = 26, 34, 430, 190, 80  # pixels
WIDTH = LABEL + 2 * HALF + NUMBER
FURTHEST = 8  # times as good, or as bad: beyond it the bar ends and the number says
TICKS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
GOOD, BAD, INK, FAINT = "#2a7f62", "#b3541e", "#333333", "#cccccc"


def times_as_good(row: Mapping[str, Any]) -> float:
    """The factor by which it is better than its baseline: of a rate more is better, of anything else less."""
    return float(row["ratio"]) if row["unit"].endswith("/s") else 1 / float(row["ratio"])


def svg(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The picture of these figures, each with what it is called; it can be read on light and dark pages."""
    height = TOP + ROW * len(rows) + 8
    bars = "".join(_bar(number, what, row) for number, (what, row) in enumerate(rows))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{_scale(height)}{bars}</svg>\n'
    )


def _scale(height: int) -> str:
    lines = []
    for tick in TICKS:
        x, name = (
            _x(tick),
            "equal" if tick == 1 else f"{readable(tick) if tick > 1 else f'1/{1 / tick:g}'} x",
        )
        lines.append(
            f'<line x1="{x}" x2="{x}" y1="22" y2="{height}" stroke="{INK if tick == 1 else FAINT}"/>\n'
        )
        lines.append(f'<text x="{x}" y="16" text-anchor="middle">{name}</text>\n')
    return "".join(lines)


def _bar(number: int, what: str, row: Mapping[str, Any]) -> str:
    good = times_as_good(row)
    y, start, end = TOP + ROW * number, _x(1), _x(min(FURTHEST, max(1 / FURTHEST, good)))
    left, colour = min(start, end), GOOD if good >= 1 else BAD
    return (
        f'<text x="{LABEL - 10}" y="{y + 12}" text-anchor="end">{escape(what)}</text>\n'
        f'<rect x="{left:.1f}" y="{y}" width="{abs(end - start):.1f}" height="16" fill="{colour}"/>\n'
        f'<text x="{LABEL + 2 * HALF + 8}" y="{y + 12}">{readable(good)} x</text>\n'
    )


def _x(factor: float) -> float:
    return round(LABEL + HALF + HALF * math.log(factor) / math.log(FURTHEST), 1)
