"""Runs a benchmark: rounds in turn with the baseline, and one that fails loses only its own rows."""

import os
import time
from collections.abc import Iterator, Mapping

from redbox_bed.bed import Bed
from tests.bench.benchmark import Benchmark, Trial
from tests.bench.rows import Conditions, Row, Samples, failed_row, row_of


def run(benchmark: Benchmark, bed: Bed, conditions: Conditions) -> list[Row]:
    """Measure one benchmark; the first round warms up what it uses and does not count."""
    started = time.monotonic()
    seen: Conditions = {**conditions, "rounds": benchmark.rounds, "load_before": _load()}
    try:
        with benchmark.prepare(bed) as trial:
            measured, compared = _rounds(trial, benchmark.rounds)
            seen = {**seen, **(trial.notes or {}), "took_s": round(time.monotonic() - started, 1)}
        return [
            row_of(figure, measured, compared, benchmark.baseline_name, seen) for figure in benchmark.figures
        ]
    except Exception as error:  # noqa: BLE001 (reported in its rows; the others are still wanted)
        reason = f"{type(error).__name__}: {error}"
        return [failed_row(figure, reason, seen) for figure in benchmark.figures]


def _rounds(trial: Trial, rounds: int) -> tuple[Samples, Samples]:
    pairs = list(_pairs(trial, rounds + 1))[1:]
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


def _load() -> float:
    return os.getloadavg()[0]
