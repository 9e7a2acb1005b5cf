"""How benchmarks are run: in turn with their baseline, and without harm to each other."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from redbox_bed.bed import Bed
from redbox_bed.core.places import Places
from redbox_bed.core.plan import Options, make_plan
from tests.bench.benchmark import Benchmark, Prepare, Trial, all_benchmarks
from tests.bench.effort import VARIABLE
from tests.bench.report import store, table
from tests.bench.rows import Figure, Row, failed_row, row_of
from tests.bench.runner import run
from tests.bench.stage import Stage

FIGURE = Figure("latency", "one call", "ms")


@pytest.fixture(autouse=True)
def loads(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the machine's load will be, look by look; the last one stays."""
    to_come = [0.0]
    monkeypatch.setattr(os, "getloadavg", lambda: (to_come.pop(0) if to_come[1:] else to_come[0], 0, 0))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return to_come


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Of a bed that is not up: these benchmarks do not use it."""
    places = Places(state=tmp_path / "state", cache=tmp_path / "cache")
    return Stage(Bed(make_plan(Options()), places), lambda _: None)


def always(trial: Trial) -> Prepare:
    @contextmanager
    def prepare(_: Bed) -> Iterator[Trial]:
        yield trial

    return prepare


def row(name: str, value: float) -> Row:
    return row_of(Figure(name, "what it is", "ms"), [{name: value}], [], None, {})


def numbered(log: list[str], word: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        log.append(word)
        return {"latency": float(len(log))}

    return measure


def test_measurements_and_baseline_take_turns_and_the_first_round_does_not_count(stage: Stage) -> None:
    log: list[str] = []
    trial = Trial(numbered(log, "ours"), numbered(log, "bare"))
    (made,) = run(Benchmark("calls", (FIGURE,), always(trial), rounds=3, baseline_name="bare"), stage, {})
    assert log == ["ours", "bare", "bare", "ours", "ours", "bare", "bare", "ours"]
    assert made.conditions["values"] == [4, 5, 8]
    assert made.conditions["baselines"] == [3, 6, 7]


def test_the_short_form_has_one_round_and_one_to_warm_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    log: list[str] = []
    (made,) = run(Benchmark("calls", (FIGURE,), always(Trial(numbered(log, "ours"))), 3, None), stage, {})
    assert (made.conditions["values"], made.conditions["rounds"]) == ([2], 1)


def test_a_long_round_is_the_only_one_where_it_needs_no_other_before_it(stage: Stage) -> None:
    log: list[str] = []
    trial = Trial(numbered(log, "ours"))
    run(Benchmark("calls", (FIGURE,), always(trial), rounds=1, baseline_name=None, warm_up=False), stage, {})
    assert log == ["ours"]


def test_what_one_figure_lacks_is_no_failure_of_the_others(stage: Stage) -> None:
    figures = (FIGURE, Figure("rate", "calls", "1/s"))
    measured = Trial(lambda: {"rate": 5.0})
    made = run(Benchmark("calls", figures, always(measured), rounds=1, baseline_name=None), stage, {})
    assert [(row.name, row.value) for row in made] == [("latency", None), ("rate", 5)]


def test_a_benchmark_that_fails_is_reported_for_each_of_its_figures(stage: Stage) -> None:
    def fail() -> dict[str, float]:
        raise ConnectionError("slurmctld is away")

    figures = (FIGURE, Figure("rate", "calls", "1/s"))
    made = run(
        Benchmark("calls", figures, always(Trial(fail)), rounds=3, baseline_name=None), stage, {"cores": 2}
    )
    assert [(row.name, row.value, row.holds) for row in made] == [
        ("latency", None, False),
        ("rate", None, False),
    ]
    assert {row.conditions["failure"] for row in made} == {"ConnectionError: slurmctld is away"}


def test_benchmarks_that_follow_each_other_share_what_they_need_until_one_fails(stage: Stage) -> None:
    log: list[str] = []

    @contextmanager
    def installed(_: Bed) -> Iterator[str]:
        log.append("installed")
        yield "what is installed"
        log.append("taken away")

    def fail() -> dict[str, float]:
        raise ConnectionError

    def of(word: str, measure: Callable[[], dict[str, float]] | None = None) -> Benchmark:
        @contextmanager
        def prepare(given: str) -> Iterator[Trial]:
            assert given == "what is installed"
            yield Trial(measure or numbered(log, word))

        return Benchmark(word, (FIGURE,), prepare, 1, None, warm_up=False, within=installed)

    bare = Benchmark("bare", (FIGURE,), always(Trial(numbered(log, "bare"))), 1, None, warm_up=False)
    for benchmark in (of("one"), of("two"), of("three", fail), of("four"), bare):
        run(benchmark, stage, {})
    assert log == [
        *("installed", "one", "two", "taken away"),
        *("installed", "four", "taken away", "bare"),
    ]


def test_a_figure_that_was_not_measured_is_a_failure(stage: Stage) -> None:
    (made,) = run(Benchmark("calls", (FIGURE,), always(Trial(dict)), rounds=1, baseline_name=None), stage, {})
    assert made.value is None


def test_stored_rows_replace_those_of_their_name_and_keep_the_others(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench.json"
    store([row("a", 1), row("b", 2)], path)
    store([row("b", 3)], path)
    assert [(row["name"], row["value"]) for row in json.loads(path.read_text())] == [("a", 1), ("b", 3)]
    assert [file.name for file in path.parent.iterdir()] == ["bench.json"]


def test_a_stored_row_has_the_fields_that_readers_rely_on(tmp_path: Path) -> None:
    store([row("a", 1)], tmp_path / "bench.json")
    (stored,) = json.loads((tmp_path / "bench.json").read_text())
    assert list(stored) == [
        *("name", "what", "unit", "value", "baseline", "baseline_name"),
        *("ratio", "target", "holds", "conditions"),
    ]


def test_the_table_shows_values_and_failures() -> None:
    console = Console(width=120)
    with console.capture() as shown:
        console.print(table([row("a", 1234.5), failed_row(FIGURE, "no [bed]", {})]))
    assert "1,234 ms" in shown.get() or "1,235 ms" in shown.get()
    assert "one call: no [bed]" in shown.get()
    assert "failed" in shown.get()


def test_no_two_benchmarks_or_rows_have_one_name() -> None:
    known = all_benchmarks()
    names = [benchmark.name for benchmark in known]
    rows = [figure.name for benchmark in known for figure in benchmark.figures]
    assert len(set(names)) == len(names) > 0
    assert len(set(rows)) == len(rows)


def test_what_the_benchmark_before_has_left_of_load_is_over_first(stage: Stage, loads: list[float]) -> None:
    loads[:] = [90.0, 40.0, 0.5]
    trial = Trial(lambda: {"latency": 1.0})
    (made,) = run(Benchmark("calls", (FIGURE,), always(trial), rounds=1, baseline_name=None), stage, {})
    assert made.conditions["load_before"] == 0.5
