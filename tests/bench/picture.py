"""Draws figures beside their baselines: a bar to the right where Red Box is better, to the left where not.

The scale is of factors: twice as good is as far to the right as half as good is to the left. It is as narrow
as a telephone can show readably, so each name is above its bar, in lines that fit.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from tests.bench.rows import readable

TOP, LEFT, LINE, BAR, GAP, HALF, NUMBER = 34, 18, 15, 16, 12, 180, 70  # pixels
WIDTH = LEFT + 2 * HALF + NUMBER
CHARACTERS = 62  # of 12 pixels, of which the widest sans-serif takes 7 on average
FURTHEST = 8  # times as good, or as bad: beyond it the bar ends and the number says
TICKS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
GOOD, BAD, INK, FAINT = "#2a7f62", "#b3541e", "#333333", "#cccccc"


def times_as_good(row: Mapping[str, Any]) -> float:
    """The factor by which it is better than its baseline: of a rate more is better, of anything else less."""
    return float(row["ratio"]) if row["unit"].endswith("/s") else 1 / float(row["ratio"])


def svg(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The picture of these figures, each with what it is called; it can be read on light and dark pages."""
    y, bars = TOP, []
    for what, row in rows:
        lines = textwrap.wrap(what, CHARACTERS)
        bars += [_bar(y, lines, row)]
        y += LINE * len(lines) + BAR + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">\n'
        f'<rect width="{WIDTH}" height="{y}" fill="white"/>\n{_scale(y)}{"".join(bars)}</svg>\n'
    )


def _scale(height: int) -> str:
    lines = []
    for tick in TICKS:
        x, name = _x(tick), "equal" if tick == 1 else _times(tick)
        lines.append(
            f'<line x1="{x}" x2="{x}" y1="22" y2="{height}" stroke="{INK if tick == 1 else FAINT}"/>\n'
        )
        lines.append(f'<text x="{x}" y="16" text-anchor="middle">{name}</text>\n')
    return "".join(lines)


def _bar(top: int, lines: Sequence[str], row: Mapping[str, Any]) -> str:
    good = times_as_good(row)
    y, start, end = top + LINE * len(lines), _x(1), _x(min(FURTHEST, max(1 / FURTHEST, good)))
    left, colour = min(start, end), GOOD if good >= 1 else BAD
    texts = [_text(line, top + LINE * number) for number, line in enumerate(lines)]
    return (
        "".join(texts)
        + f'<rect x="{left:.1f}" y="{y}" width="{abs(end - start):.1f}" height="{BAR}" fill="{colour}"/>\n'
        + f'<text x="{LEFT + 2 * HALF + 8}" y="{y + 12}">{_times(good)}</text>\n'
    )


def _times(factor: float) -> str:
    """In as little width as a number beside a bar has."""
    return f"1/{readable(1 / factor)} x" if factor <= 1 / FURTHEST else f"{readable(factor)} x"


def _text(line: str, top: int) -> str:
    """With the page behind it, where lines of the scale would cross it."""
    halo = 'stroke="white" stroke-width="3" paint-order="stroke"'
    return f'<text x="{LEFT}" y="{top + 10}" {halo}>{escape(line)}</text>\n'


def _x(factor: float) -> float:
    return round(LEFT + HALF + HALF * math.log(factor) / math.log(FURTHEST), 1)
