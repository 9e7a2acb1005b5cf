"""Rows to build/bench.json and to the terminal."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from tests.bench.rows import Row, readable


def store(rows: Sequence[Row], path: Path) -> None:
    """Replace rows of the same names and keep the others (each has its date); never leaves half a file."""
    fresh = {row.name: row.as_json() for row in rows}
    kept = [row for name, row in stored_rows(path).items() if name not in fresh]
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps([*kept, *fresh.values()], indent=1) + "\n")
    unfinished.replace(path)


def stored_rows(path: Path) -> dict[str, dict[str, Any]]:
    """By name; nothing where nothing was measured."""
    try:
        return {row["name"]: row for row in json.loads(path.read_text())}
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def table(rows: Iterable[Row]) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    shown.add_column("name", no_wrap=True)
    shown.add_column("what", min_width=30, max_width=46)
    shown.add_column("value", justify="right", no_wrap=True)
    shown.add_column("baseline", max_width=26)
    shown.add_column("ratio", justify="right", no_wrap=True)
    shown.add_column("target", max_width=16)
    for row in rows:
        shown.add_row(
            row.name,
            escape(row.what if row.value is not None else f"{row.what}: {row.conditions['failure']}"),
            readable(row.value, row.unit) if row.value is not None else "[red]failed[/]",
            f"{readable(row.baseline, row.unit)} ({row.baseline_name})" if row.baseline is not None else "",
            readable(row.ratio) if row.ratio is not None else "",
            _verdict(row),
        )
    return shown


def _verdict(row: Row) -> str:
    if row.target is None:
        return ""
    return f"{row.target} [green]holds[/]" if row.holds else f"{row.target} [red]missed[/]"
