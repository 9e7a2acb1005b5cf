"""Runs the benchmarks on the bed and writes build/bench.json: `python -m tests.bench [--only NAME]`."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.delivery import take_away
from tests.bench.benchmark import Benchmark, all_benchmarks
from tests.bench.conditions import bed_versions, machine_conditions
from tests.bench.report import store, table
from tests.bench.rows import Row
from tests.bench.runner import run

BED = CHECKOUT / "deploy/local/bed"
RESULTS = CHECKOUT / "build/bench.json"


def chosen(only: str | None) -> tuple[Benchmark, ...]:
    known = all_benchmarks()
    wanted = tuple(benchmark for benchmark in known if only is None or benchmark.is_called(only))
    if not wanted:
        names = ", ".join(benchmark.name for benchmark in known)
        raise typer.BadParameter(f"there is no benchmark {only!r}; there are: {names}")
    return wanted


@contextmanager
def bed_in_use() -> Iterator[Bed]:
    """Bring the bed up if it is not, and then take it down afterwards."""
    was_up = subprocess.run([BED, "status"], check=False, capture_output=True, timeout=120).returncode == 0
    if was_up:
        yield Bed.open()
        return
    try:
        subprocess.run([BED, "up"], check=True, stdin=subprocess.DEVNULL, timeout=45 * 60)
        yield Bed.open()
    finally:
        subprocess.run([BED, "down"], check=True, timeout=300)


def main(
    only: Annotated[str | None, typer.Option(help="One benchmark, or one of its rows.")] = None,
    results: Annotated[Path, typer.Option(help="Where the rows are written.")] = RESULTS,
) -> None:
    """Measure, show, and keep the rows; exits with 1 if a benchmark failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # which clears away on its way
    console = Console(width=None if sys.stdout.isatty() else 140)
    wanted = chosen(only)
    rows: list[Row] = []
    with bed_in_use() as bed:
        conditions = {**machine_conditions(datetime.now(UTC)), **bed_versions(bed)}
        for number, benchmark in enumerate(wanted, start=1):
            console.print(f"[{number}/{len(wanted)}] {benchmark.name}", markup=False, highlight=False)
            take_away(bed)  # what a demo or a benchmark left: of two controllers one waits, or both work
            rows += run(benchmark, bed, conditions)
            store(rows, results)
    console.print(table(rows))
    console.print(f"written to {results}", highlight=False)
    sys.exit(any(row.value is None for row in rows))


if __name__ == "__main__":
    typer.run(main)
