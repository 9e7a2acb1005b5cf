"""Output of commands: a table for people, JSON or YAML for programs.

On a terminal a table is as wide as the terminal; in a pipe every cell is whole, two spaces separate columns,
and there is no markup. Control characters are replaced, so that a job's name cannot control the terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml
from pydantic import BaseModel
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from redbox.commands.exit_codes import say
from redbox_shared.printable import printable


class OutputFormat(StrEnum):
    """Values of the option --output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[OutputFormat, typer.Option("--output", "-o", help="The format.")]

Columns = Mapping[str, Callable[[Any], object]]
"""A heading for each column, and the function that returns an item's cell."""


def show_list(items: Sequence[Any], columns: Columns, output: OutputFormat) -> None:
    """Print items, one a row."""
    if output is OutputFormat.TABLE:
        rows = [[_cell(value(item)) for value in columns.values()] for item in items]
        _show_table([*columns], rows)
    else:
        _show_document([_plain(item) for item in items], output)


def show_one(item: BaseModel, output: OutputFormat) -> None:
    """Print one item, a line for each field that is not empty."""
    document = _plain(item)
    if output is OutputFormat.TABLE:
        _show_table([], [[name, _cell(value)] for name, value in _flat(document)])
    else:
        _show_document(document, output)


def _plain(item: object) -> Any:  # noqa: ANN401 (JSON's values)
    if isinstance(item, BaseModel):
        return item.model_dump(mode="json", by_alias=True, exclude_none=True)
    return item


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value or type(value) is int:  # an exit code of 0 is shown, a False is not
            yield prefix + name, value


def _show_document(document: object, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        say(json.dumps(document, indent=2))
    else:
        say(yaml.safe_dump(document, sort_keys=False, default_flow_style=False).rstrip("\n"))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        value = ", ".join(_cell(item) for item in value)
    return printable(value)


def _show_table(headings: list[str], rows: list[list[str]]) -> None:
    if sys.stdout.isatty():
        _show_on_terminal(headings, rows)
        return
    lines = [headings, *rows] if headings else rows
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))] if lines else []
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        say("  ".join(padded).rstrip())


def _show_on_terminal(headings: list[str], rows: list[list[str]]) -> None:
    table = Table(box=box.SIMPLE_HEAD if headings else None, show_header=bool(headings), pad_edge=False)
    for heading in headings or ["", ""]:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)
