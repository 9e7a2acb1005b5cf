"""One observation of the rows that a job has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from redbox.core.observations import Observation, TaskObservation
from redbox.core.output_patterns import PatternValues, named_by, resolve_pattern
from redbox.slurm.text import array_expressions
from redbox.slurm.text.job_row import JobRow
from redbox_api.hostlists import first_host


def observe(
    identity: JobRow,
    decisive: JobRow,
    parts: Sequence[JobRow],
    *,
    job_id: str,
    mark: str,
    live: bool,
    restarts: int,
    stdout: str | None,
    stderr: str | None,
    requeue: bool = True,
    cancelled_by: int | None = None,
) -> Observation:
    """A job: its identity from one row, its state from another, its nodes and times from all parts."""
    return Observation(
        job_id=job_id,
        uid=identity.uid,
        mark=mark,
        comment=mark,
        state=decisive.state,
        live=live,
        name=identity.name,
        user=identity.user,
        reason=decisive.reason,
        exit_code=decisive.exit.code,
        signal=decisive.exit.signal,
        partition=_join_unique(name for row in parts for name in row.partition.split(",")),
        account=_join_unique(name for row in parts for name in row.account.split(",")),
        qos=identity.qos,
        nodes=_join_unique(row.nodes for row in parts),
        submitted_at=_earliest(row.submitted_at for row in parts),
        started_at=_earliest(row.started_at for row in parts),
        ended_at=_latest_if_all([row.ended_at for row in parts]),
        restarts=restarts,
        requeue=requeue,
        cancelled_by=cancelled_by,
        stdout=stdout,
        stderr=stderr,
        working_directory=identity.working_directory,
        shape=identity.shape,
    )


def observe_tasks(row: JobRow, job_id: str, own_id: str) -> Iterable[TaskObservation]:
    """The task, or those of an expression, which were never split off and have neither own id nor node."""
    by_id, by_node = named_by(row.stdout, row.stderr) if (row.array_task or "").isdigit() else (False, False)
    names = own_id if by_id else "", (first_host(row.nodes) or "") if by_node else ""
    for index in array_expressions.expand(row.array_task or ""):
        yield TaskObservation(
            index, f"{job_id}_{index}", row.state, row.exit.code, row.exit.signal, row.restarts, *names
        )


def output_path(pattern: str | None, row: JobRow, own_id: str) -> str | None:
    if pattern is None:
        return None
    node = first_host(row.nodes)
    values = PatternValues(own_id, row.user, row.name, row.working_directory, first_node=node)
    return resolve_pattern(pattern, values)


def _join_unique(words: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(filter(None, words)))


def _earliest(times: Iterable[datetime | None]) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def _latest_if_all(times: Sequence[datetime | None]) -> datetime | None:
    return max((time for time in times if time is not None), default=None) if all(times) else None
