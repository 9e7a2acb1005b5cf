"""Runs a benchmark: rounds in turn with the baseline, and one that fails loses only its own rows."""

import os
import time
from collections.abc import Iterator, Mapping

from tests.bench.benchmark import Benchmark, Trial
from tests.bench.effort import is_short
from tests.bench.rows import Conditions, Figure, Row, Samples, failed_row, row_of
from tests.bench.stage import Stage

FEW_ROUNDS = 2
SETTLED = 1.0
"""For each core: a load that leaves a benchmark alone."""
SETTLES_WITHIN_S = 180.0


def run(benchmark: Benchmark, stage: Stage, conditions: Conditions) -> list[Row]:
    """Measure one benchmark; the first round warms up what it uses and does not count."""
    load = os.getloadavg()[0] if is_short() else settled_load()
    started = time.monotonic()
    rounds = 1 if is_short() else benchmark.rounds
    seen: Conditions = {**conditions, "rounds": rounds, "load_before": load}
    try:
        with stage.set_for(benchmark) as installed, benchmark.prepare(installed) as trial:
            measured, compared = _rounds(trial, rounds, warm_up=_warms_up(benchmark))
            seen = {**seen, **(trial.notes or {})}
    except Exception as error:  # noqa: BLE001 (reported in its rows; the others are still wanted)
        reason = f"{type(error).__name__}: {error}"
        return [failed_row(figure, reason, seen) for figure in benchmark.figures]
    seen = {**seen, "took_s": round(time.monotonic() - started, 1)}
    return [_row(figure, measured, compared, benchmark.baseline_name, seen) for figure in benchmark.figures]


def _row(
    figure: Figure, measured: Samples, compared: Samples, baseline_name: str | None, conditions: Conditions
) -> Row:
    if any(figure.name not in sample for sample in measured):
        return failed_row(figure, "it was not measured", conditions)
    return row_of(figure, measured, compared, baseline_name, conditions)


def _warms_up(benchmark: Benchmark) -> bool:
    """In the short form a round that is so long that there are few needs no other before it."""
    return benchmark.warm_up and not (is_short() and benchmark.rounds <= FEW_ROUNDS)


def _rounds(trial: Trial, rounds: int, *, warm_up: bool) -> tuple[Samples, Samples]:
    pairs = list(_pairs(trial, rounds + warm_up))[int(warm_up) :]
    return [measured for measured, _ in pairs], [compared for _, compared in pairs if compared]


def _pairs(trial: Trial, rounds: int) -> Iterator[tuple[Mapping[str, float], Mapping[str, float]]]:
    """Measure in turn, beginning with either by turns: what drifts on the machine meets both alike."""
    for number in range(rounds):
        if trial.baseline is None:
            yield trial.measure(), {}
        elif number % 2:
            compared = trial.baseline()
            yield trial.measure(), compared
        else:
            measured = trial.measure()
            yield measured, trial.baseline()


def settled_load() -> float:
    """The load without what the benchmark before has left, which is over after a while: others' stays."""
    gives_up_at = time.monotonic() + SETTLES_WITHIN_S
    limit = SETTLED * len(os.sched_getaffinity(0))
    while (load := os.getloadavg()[0]) > limit and time.monotonic() < gives_up_at:
        time.sleep(1)
    return load
