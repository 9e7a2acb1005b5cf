"""Tables that fit the terminal: the least important columns go first, then the end of the last. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubectl_slurm.terminal.screen import one_line

if TYPE_CHECKING:
    from kubectl_slurm.terminal.screen import Screen

GAP = "  "
CUT = "…"
SHORTEST_CUT = 8
"""A cell that is cut keeps so many characters."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str
    right: bool = False
    """Numbers and ids stand at the right."""
    importance: int = 5
    """On a narrow terminal those of the lowest go first; 9 stays."""
    longest: int | None = None
    """On a terminal a cell is cut to so many characters."""


@dataclass(frozen=True)
class Cell:
    """A cell's text, and its colour."""

    text: str
    colour: str = ""


Row = Sequence[str | Cell]
ESSENTIAL = 9


def render(columns: Sequence[Column], rows: Sequence[Row], screen: Screen, *, headings: bool = True) -> str:
    """The lines of the table."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    if screen.width is not None:
        cells = [
            [_cut(cell, column.longest) for cell, column in zip(row, columns, strict=True)] for row in cells
        ]
    shown = _chosen(columns, cells, screen.width)
    if screen.width is not None:
        cells = _narrowed(columns, cells, shown, screen.width)
    widths = _widths([columns[n] for n in shown], [[row[n] for n in shown] for row in cells])
    lines = []
    if headings:
        heading = [Cell(columns[n].heading, "bold") for n in shown]
        lines.append(_line([columns[n] for n in shown], heading, widths, screen))
    lines += [_line([columns[n] for n in shown], [row[n] for n in shown], widths, screen) for row in cells]
    return "".join(f"{line}\n" for line in lines)


def _cell(cell: str | Cell) -> Cell:
    return Cell(one_line(cell)) if isinstance(cell, str) else Cell(one_line(cell.text), cell.colour)


def _cut(cell: Cell, longest: int | None) -> Cell:
    if longest is None or len(cell.text) <= longest:
        return cell
    return Cell(cell.text[: longest - 1] + CUT, cell.colour)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
    return [
        max([len(column.heading), *(len(row[n].text) for row in rows)]) for n, column in enumerate(columns)
    ]


def _chosen(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> list[int]:
    """The indexes of the columns that fit; the last one needs only the width of a short cell."""
    shown = list(range(len(columns)))
    if width is None:
        return shown
    widths = _widths(columns, rows)
    while len(shown) > 1 and _needed(shown, widths) > width:
        weakest = min(shown, key=lambda n: (columns[n].importance, -n))
        if columns[weakest].importance >= ESSENTIAL:
            break
        shown.remove(weakest)
    return shown


def _narrowed(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], shown: Sequence[int], width: int
) -> list[list[Cell]]:
    """Where even the essential ones are too wide: long cells are cut more, so that the last has its place."""
    widths = _widths(columns, rows)
    excess = max(0, _needed(shown, widths) - width)
    longest = [
        None if column.longest is None else max(SHORTEST_CUT, widths[n] - excess)
        for n, column in enumerate(columns)
    ]
    return [[_cut(cell, most) for cell, most in zip(row, longest, strict=True)] for row in rows]


def _needed(shown: Sequence[int], widths: Sequence[int]) -> int:
    *before, last = shown
    return sum(widths[n] + len(GAP) for n in before) + min(widths[last], max(SHORTEST_CUT, 12))


def _line(columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int], screen: Screen) -> str:
    left = screen.width
    parts = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        is_last = column is columns[-1]
        text = cell.text
        if left is not None and is_last and len(text) > left:
            text = text[: max(left - 1, 0)] + CUT
        padded = (
            text
            if is_last and not column.right
            else (text.rjust(width) if column.right else text.ljust(width))
        )
        parts.append(screen.paint(padded, cell.colour))
        if left is not None:
            left -= width + len(GAP)
    return GAP.join(parts).rstrip()
