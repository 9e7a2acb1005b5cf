"""Runs the benchmarks on the bed and writes build/bench.json: `python -m tests.bench [--only NAME]`.

Rows are stored as soon as they are measured, each with its commit: what was stopped goes on with `--resume`.
"""

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.delivery import take_away
from tests.bench.benchmark import Benchmark, all_benchmarks
from tests.bench.conditions import bed_versions, checked_out_commit, machine_conditions
from tests.bench.effort import choose_short
from tests.bench.progress import StoredRows, expected_s, is_clean, left_to_measure, readable_time
from tests.bench.report import store, stored_rows, table
from tests.bench.rows import Conditions, Row
from tests.bench.runner import run
from tests.bench.stage import Stage

BED = CHECKOUT / "deploy/local/bed"
RESULTS = CHECKOUT / "build/bench.json"
SHORT_RESULTS = CHECKOUT / "build/bench-short.json"
STOPPED = 130


def chosen(only: str | None, *, short: bool) -> tuple[Benchmark, ...]:
    known = all_benchmarks()
    if only is None:
        return tuple(benchmark for benchmark in known if benchmark.is_in_short_form or not short)
    wanted = tuple(benchmark for benchmark in known if benchmark.is_called(only))
    if not wanted:
        names = ", ".join(benchmark.name for benchmark in known)
        raise typer.BadParameter(f"there is no benchmark {only!r}; there are: {names}")
    return wanted


@contextmanager
def bed_in_use() -> Iterator[Bed]:
    """Bring the bed up if it is not, and then take it down afterwards."""
    if bed_is_up():
        yield Bed.open()
        return
    try:
        if subprocess.run([BED, "up"], check=False, stdin=subprocess.DEVNULL, timeout=45 * 60).returncode:
            raise SystemExit(1)  # the bed has printed why
        yield Bed.open()
    finally:
        subprocess.run([BED, "down"], check=True, timeout=300)


def bed_is_up() -> bool:
    return subprocess.run([BED, "status"], check=False, capture_output=True, timeout=120).returncode == 0


class Session:
    """The benchmarks one after the other, and what is shown of them meanwhile."""

    def __init__(self, console: Console, wanted: tuple[Benchmark, ...], results: Path) -> None:
        self.rows: list[Row] = []
        self._console = console
        self._wanted = wanted
        self._results = results
        self._earlier: StoredRows = stored_rows(results)

    def announce(self, measured: int) -> None:
        kept = f"; {measured} were measured on this commit and are kept" if measured else ""
        self._say(f"{len(self._wanted)} benchmarks, about {self._left(0)}{kept}")
        self._say("It can be stopped (Ctrl-C) and taken up again where it was (--resume).")

    def run(self, bed: Bed | None) -> None:
        """Without a bed: those that need none."""
        versions = bed_versions(bed) if bed else {}
        conditions = {**machine_conditions(datetime.now(UTC)), **versions}
        with closing(Stage(bed, take_away)) as stage:
            self._run_all(stage, conditions)

    def _run_all(self, stage: Stage, conditions: Conditions) -> None:
        for number, benchmark in enumerate(self._wanted):
            about = readable_time(expected_s(benchmark, self._earlier))
            self._say(
                f"[{number + 1}/{len(self._wanted)}] {time.strftime('%H:%M:%S')} {benchmark.name}, "
                f"about {about} (all that is left: {self._left(number)})"
            )
            date = datetime.now(UTC).isoformat(timespec="seconds")
            made = run(benchmark, stage, {**conditions, "date": date})
            store(made, self._results)
            self.rows += made

    def say_stopped(self) -> None:
        done = {row.name for row in self.rows}
        left = [one.name for one in self._wanted if not done & {figure.name for figure in one.figures}]
        self._say(
            f"stopped; {self._results} has what was measured. "
            f"With --resume {len(left)} are left: {', '.join(left[:3])}{' …' if left[3:] else ''}"
        )

    def show(self) -> None:
        self._console.print(table(self.rows))
        self._say(f"written to {self._results}")

    def _left(self, number: int) -> str:
        return readable_time(sum(expected_s(one, self._earlier) for one in self._wanted[number:]))

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def main(
    only: Annotated[str | None, typer.Option(help="One benchmark, or one of its rows.")] = None,
    results: Annotated[Path | None, typer.Option(help="Where the rows are written.")] = None,
    *,
    short: Annotated[
        bool,
        typer.Option("--short", help="Less of what has a target, without large numbers: 15 minutes."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Only what was not yet measured on this commit.")
    ] = False,
) -> None:
    """Measure, show, and keep the rows; exits with 1 if a benchmark failed, with 130 if it was stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # either clears away on its way
    if short:
        choose_short()
    path = results or (SHORT_RESULTS if short else RESULTS)
    log_beside(path)
    console = Console(width=None if sys.stdout.isatty() else 140)
    every = chosen(only, short=short)
    commit = checked_out_commit()
    if resume and not is_clean(commit):
        console.print("The checkout has changes that no commit tells: everything is measured anew.")
    wanted = left_to_measure(every, stored_rows(path), commit) if resume else every
    session = Session(console, wanted, path)
    session.announce(len(every) - len(wanted))
    if not wanted:
        return
    try:
        with bed_in_use() if any(one.needs_bed for one in wanted) else nullcontext() as bed:
            session.run(bed)
    except KeyboardInterrupt:
        session.say_stopped()
        raise SystemExit(STOPPED) from None
    session.show()
    sys.exit(any(row.value is None for row in session.rows))


def log_beside(results: Path) -> None:
    """What the doubles and libraries log, tracebacks of dropped connections among it, goes into a file."""
    results.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=results.with_suffix(".log"), filemode="w", level=logging.WARNING)


if __name__ == "__main__":
    typer.run(main)
