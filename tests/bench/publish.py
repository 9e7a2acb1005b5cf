"""Publishes what was measured: build/bench.json to docs/reference/figures.json, then a page and its picture.

Run: python -m tests.bench.publish [RESULTS…]   (make figures)

Rows of the same name are replaced, others stay with their date; what was never measured is named. Rows of the
short form, and those of a machine that others used, are left out.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from redbox_bed.core.places import CHECKOUT
from tests.bench.benchmark import Benchmark, all_benchmarks
from tests.bench.picture import svg
from tests.bench.rows import Figure, readable

Published = Mapping[str, Any]
RESULTS = CHECKOUT / "build/bench.json"
STORED = CHECKOUT / "docs/reference/figures.json"
PAGE = CHECKOUT / "docs/reference/figures.md"
PICTURE = CHECKOUT / "docs/reference/figures.svg"
BUSY = 3.0
"""For each core, a load before a benchmark that is of others: the benchmark before leaves less."""
PUBLISHED = "published"
CONDITIONS = ("date", "commit", "rounds", "load_before")
HEAD = """\
# What it costs, measured

Made by `make figures` from what `make bench` measured: do not edit. Each figure is the median of its rounds,
with the lowest and the highest below it. What stands beside it was measured in the same run, in turn with Red
Box. The targets were set before anything was measured; what misses its target is here all the same.

![Each figure beside its baseline](figures.svg)
"""
TABLE = """\
| what | Red Box | beside it | ratio | target |
|---|---|---|---|---|
"""


def published(row: Published) -> Published:
    """What is kept of a row of bench.json."""
    conditions = row["conditions"]
    values: Sequence[float] = conditions.get("values", ())
    facts = {
        name: row[name] for name in ("name", "unit", "value", "baseline", "baseline_name", "ratio", "holds")
    }
    spread = {"lowest": min(values), "highest": max(values)} if values else {}
    return {**facts, **spread, **{name: conditions[name] for name in CONDITIONS if name in conditions}}


def machine(rows: Iterable[Published]) -> str:
    """The machine and what ran on it, of the newest row; rows of a page come from one kind of machine."""
    seen = max((row["conditions"] for row in rows), key=lambda conditions: str(conditions["date"]))
    return (
        f"Measured on {seen['cores']} cores ({seen['cpu']}), {seen['memory_gib']:g} GiB, "
        f"Linux {seen['kernel']}, with {seen['slurm_hpc1']}, Kubernetes {seen['kubernetes']} and "
        f"Python {seen['python']}; Slurm, Kubernetes, Red Box and what loads them share these cores."
    )


def page(stored: Mapping[str, Any], benchmarks: Sequence[Benchmark]) -> str:
    """The page. Pure."""
    rows = {row["name"]: row for row in stored["rows"]}
    parts = [HEAD, stored["machine"] + "\n"]
    for heading, explanation, figures in sections(benchmarks):
        lines = [line(figure, rows[figure.name]) for figure in figures if figure.name in rows]
        if lines:
            parts.append(f"## {heading}\n\n{explanation}{TABLE}" + "".join(lines))
    missing = [figure.name for one in benchmarks for figure in one.figures if figure.name not in rows]
    if missing:
        parts.append("## Not measured yet\n\n" + "".join(f"- `{name}`\n" for name in missing))
    return "\n".join(parts)


def picture(stored: Mapping[str, Any], benchmarks: Sequence[Benchmark]) -> str:
    """All that has a baseline, as one picture. Pure."""
    rows = {row["name"]: row for row in stored["rows"] if row["ratio"]}
    known = [figure for one in benchmarks for figure in one.figures if figure.name in rows]
    return svg([(figure.what, rows[figure.name]) for figure in known])


def sections(benchmarks: Sequence[Benchmark]) -> Iterator[tuple[str, str, list[Figure]]]:
    """The figures by the module that measures them: its first line is the heading, the rest explains it."""
    by_module: dict[str, list[Figure]] = {}
    for one in benchmarks:
        by_module.setdefault(one.prepare.__module__, []).extend(one.figures)
    for module, figures in by_module.items():
        heading, _, rest = (sys.modules[module].__doc__ or module).partition("\n")
        yield heading.rstrip("."), f"{rest.strip()}\n\n" if rest.strip() else "", figures


def line(figure: Figure, row: Published) -> str:
    cells = (figure.what, _value(row), _beside(row), _ratio(row), _verdict(figure, row))
    return f"| {' | '.join(cells)} |\n"


def _value(row: Published) -> str:
    if row["value"] is None:
        return "failed"
    many = row.get("rounds", 1) > 1
    spread = f"<br>{readable(row['lowest'])} to {readable(row['highest'])}" if many else ""
    return readable(row["value"], row["unit"]) + spread


def _beside(row: Published) -> str:
    return (
        "" if row["baseline"] is None else f"{readable(row['baseline'], row['unit'])}, {row['baseline_name']}"
    )


def _ratio(row: Published) -> str:
    return "" if row["ratio"] is None else readable(row["ratio"])


def _verdict(figure: Figure, row: Published) -> str:
    """By today's target, which may be younger than the measurement."""
    if figure.target is None:
        return ""
    holds = row["value"] is not None and figure.target.holds(row["value"], row["baseline"])
    return f"{figure.target}: {'holds' if holds else '**missed**'}"


def is_quiet(row: Published) -> bool:
    """Whether the machine was Red Box's own."""
    return bool(row["conditions"]["load_before"] <= BUSY * row["conditions"]["cores"])


def verdict(row: Published) -> str:
    """Whether it is published, and why not."""
    if row["conditions"].get("short"):
        return "left out, the short form is no figure"
    return PUBLISHED if is_quiet(row) else "left out, the machine was busy"


def publish(
    results: Annotated[list[Path] | None, typer.Argument(exists=True, help="Of `make bench`.")] = None,
) -> None:
    """Take over the rows of these files, the later ones last."""
    if not results and not RESULTS.exists():
        print(f"{RESULTS} does not exist (`make bench` writes it): the page is made of what is published")
    paths = results or ([RESULTS] if RESULTS.exists() else [])
    found = [row for path in paths for row in json.loads(path.read_text())]
    measured = [row for row in found if verdict(row) == PUBLISHED]
    for row in found:
        print(f"{row['name']}: {verdict(row)}")
    if found and not measured:
        raise typer.Exit(1)
    stored = json.loads(STORED.read_text()) if STORED.exists() else {"rows": []}
    rows = {row["name"]: row for row in stored["rows"]} | {row["name"]: published(row) for row in measured}
    ordered = [figure.name for one in all_benchmarks() for figure in one.figures]
    described = machine(measured) if measured else stored["machine"]
    kept = {"machine": described, "rows": [rows[name] for name in ordered if name in rows]}
    STORED.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(kept, all_benchmarks()))
    PICTURE.write_text(picture(kept, all_benchmarks()))


if __name__ == "__main__":
    typer.run(publish)
