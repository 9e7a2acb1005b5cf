"""From sacct's rows to jobs: each run of an array, a het job or a plain job is one observation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from redbox.core.observations import Observation, TaskObservation
from redbox.slurm.commands.sacct import AccountedRun, AccountingRow
from redbox.slurm.text import array_expressions
from redbox.slurm.text.states import Exit, has_ended, has_not_begun, severity
from redbox.slurm.views.observations import observe, observe_tasks, output_path

RESIZED = "RESIZING"


def build_accounting_jobs(rows: Iterable[AccountingRow]) -> tuple[Observation, ...]:
    """The jobs, run by run; tasks of an array that ran again count with their latest run.

    An id that slurmctld has reused is two jobs: they differ in uid or mark. A run whose nodes were changed
    has a row for each size, of which the last one has its end.
    """
    groups: dict[tuple[str, int, str, int], list[AccountingRow]] = {}
    runs: dict[tuple[str, int, str], int] = {}
    resized: set[tuple[str, int, str]] = set()
    for row in sorted(rows, key=order_of_runs):
        part = (row.raw_id, row.uid, row.mark)
        run = runs[part] = runs.get(part, -1) + (part not in resized)
        (resized.add if row.state == RESIZED else resized.discard)(part)
        whole = (row.job_id, row.uid, row.mark, 0 if row.array_task is not None else run)
        groups.setdefault(whole, []).append(replace(row, restarts=max(run, row.restarts)))
    return tuple(_observe(parts) for parts in groups.values())


def with_complete_exits(
    rows: Sequence[AccountingRow], codes: dict[tuple[str, int], int]
) -> tuple[AccountingRow, ...]:
    """The rows with exit codes that the text form had cut; `codes` by raw id and end time."""

    def with_code(row: AccountingRow) -> AccountingRow:
        code = codes.get((row.raw_id, int(row.ended_at.timestamp()) if row.ended_at else 0))
        return row if code is None or row.exit.code is None else replace(row, exit=Exit(code))

    return tuple(map(with_code, rows))


def order_of_runs(row: AccountedRun) -> tuple[float, float]:
    submitted = row.submitted_at.timestamp() if row.submitted_at else 0.0
    return (submitted, row.started_at.timestamp() if row.started_at else submitted)


def _observe(rows: Sequence[AccountingRow]) -> Observation:
    parts = sorted(rows, key=lambda row: (row.het_offset, int(row.raw_id)))
    decisive, identity = _decisive_row(parts), parts[0]
    stdout, stderr = identity.stdout, identity.stderr
    if identity.array_task is None:
        stdout, stderr = (output_path(pattern, identity, identity.raw_id) for pattern in (stdout, stderr))
    whole = observe(
        identity,
        decisive,
        parts,
        job_id=identity.job_id,
        mark=identity.mark,
        live=False,
        restarts=max(row.restarts for row in parts),
        cancelled_by=decisive.cancelled_by,
        stdout=stdout,
        stderr=stderr,
    )
    return whole if identity.array_task is None else _with_tasks(whole, parts)


def _decisive_row(parts: Sequence[AccountingRow]) -> AccountingRow:
    alive = [row for row in parts if not has_ended(row.state) and row.state != RESIZED]
    return alive[0] if alive else max(parts, key=lambda row: severity(row.state))


def _with_tasks(whole: Observation, parts: Sequence[AccountingRow]) -> Observation:
    tasks: dict[int, TaskObservation] = {}
    waiting = 0
    for row in parts:
        if has_not_begun(row.state) and not (row.array_task or "").isdigit():
            waiting += array_expressions.count(row.array_task or "") or 1
            continue
        tasks.update((task.index, task) for task in observe_tasks(row, whole.job_id, row.raw_id))
    ordered = tuple(tasks[index] for index in sorted(tasks))
    return replace(whole, tasks=ordered, pending_tasks=waiting, array_size=len(ordered) + waiting)
