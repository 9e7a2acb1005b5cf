"""From accounting rows to jobs: each run of an array, a het job or a plain job is one observation. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from redbox.core.workload_manager import Observation, TaskObservation
from redbox.slurm.commands.sacct import AccountingRow
from redbox.slurm.text import array_expressions
from redbox.slurm.text.states import Exit, has_ended, has_not_begun, severity
from redbox.slurm.views.output_patterns import LogFacts, first_of, resolve
from redbox.slurm.views.queue_jobs import earliest, latest_if_all, names_in, together


def remember(rows: Iterable[AccountingRow]) -> tuple[Observation, ...]:
    """The jobs, run by run; tasks of an array that ran again count with their latest run.

    An id that was given out twice is two jobs: they differ in uid or mark.
    """
    groups: dict[tuple[str, int, str, int], list[AccountingRow]] = {}
    runs: dict[tuple[str, int, str], int] = {}
    for row in sorted(rows, key=order_of_runs):
        part = (row.raw_id, row.uid, row.mark)
        run = runs[part] = runs.get(part, -1) + 1
        whole = (row.job_id, row.uid, row.mark, 0 if row.array_task is not None else run)
        groups.setdefault(whole, []).append(replace(row, restarts=max(run, row.restarts)))
    return tuple(_observe(parts) for parts in groups.values())


def with_whole_exits(
    rows: Sequence[AccountingRow], codes: dict[tuple[str, int], int]
) -> tuple[AccountingRow, ...]:
    """The rows with the exit codes that the text form had cut."""
    return tuple(_with_exit(row, codes) for row in rows)


def _with_exit(row: AccountingRow, codes: dict[tuple[str, int], int]) -> AccountingRow:
    ended = int(row.ended_at.timestamp()) if row.ended_at else 0
    code = codes.get((row.raw_id, ended))
    return row if code is None or row.exit.code is None else replace(row, exit=Exit(code))


def order_of_runs(row: AccountingRow) -> tuple[float, float]:
    submitted = row.submitted_at.timestamp() if row.submitted_at else 0.0
    return (submitted, row.started_at.timestamp() if row.started_at else submitted)


def _observe(rows: Sequence[AccountingRow]) -> Observation:
    parts = sorted(rows, key=lambda row: (row.het_offset, int(row.raw_id)))
    decisive, identity = _worst_of(parts), parts[0]
    whole = Observation(
        job_id=identity.job_id,
        uid=identity.uid,
        mark=identity.mark,
        comment=identity.mark,
        state=decisive.state,
        live=False,
        name=identity.name,
        user=identity.user,
        reason=decisive.reason,
        exit_code=decisive.exit.code,
        signal=decisive.exit.signal,
        partition=names_in(row.partition for row in parts),
        account=names_in(row.account for row in parts),
        qos=identity.qos,
        nodes=together(row.nodes for row in parts),
        submitted_at=earliest(row.submitted_at for row in parts),
        started_at=earliest(row.started_at for row in parts),
        ended_at=latest_if_all(row.ended_at for row in parts),
        restarts=max(row.restarts for row in parts),
        cancelled_by=decisive.cancelled_by,
        stdout=_path(identity, identity.stdout),
        stderr=_path(identity, identity.stderr),
        working_directory=identity.working_directory,
    )
    return whole if identity.array_task is None else _with_tasks(whole, parts)


def _worst_of(parts: Sequence[AccountingRow]) -> AccountingRow:
    alive = [row for row in parts if not has_ended(row.state)]
    return alive[0] if alive else max(parts, key=lambda row: severity(row.state))


def _with_tasks(whole: Observation, parts: Sequence[AccountingRow]) -> Observation:
    tasks: dict[int, TaskObservation] = {}
    waiting = 0
    for row in parts:
        if has_not_begun(row.state) and not (row.array_task or "").isdigit():
            waiting += array_expressions.count(row.array_task or "") or 1
            continue
        for index in array_expressions.expand(row.array_task or ""):
            job_id = f"{whole.job_id}_{index}"
            tasks[index] = TaskObservation(
                index, job_id, row.state, row.exit.code, row.exit.signal, row.restarts
            )
    ordered = tuple(tasks[index] for index in sorted(tasks))
    return replace(whole, tasks=ordered, pending_tasks=waiting, array_size=len(ordered) + waiting)


def _path(row: AccountingRow, pattern: str | None) -> str | None:
    if pattern is None or row.array_task is not None:
        return pattern
    return resolve(
        pattern,
        LogFacts(row.raw_id, row.user, row.name, row.working_directory, first_node=first_of(row.nodes)),
    )
