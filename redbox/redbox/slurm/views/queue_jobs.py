"""From squeue's rows to jobs: an array with all its tasks, a het job with all its components, is one job.

A job is alive while one of its parts is; when all have ended the worst end counts. A job with two different
rows for one id is left out, and its id is returned as contradictory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from redbox.core.workload_manager import Observation, TaskObservation
from redbox.slurm.commands.squeue import QueueRow
from redbox.slurm.text import array_expressions
from redbox.slurm.text.states import has_ended, is_waiting, severity
from redbox.slurm.views.output_patterns import PatternValues, resolve_pattern
from redbox_api.hostlists import first_host


def build_queue_jobs(rows: Iterable[QueueRow]) -> tuple[tuple[Observation, ...], frozenset[str]]:
    """The jobs, and the ids whose rows contradict each other."""
    return QueueJobBuilder().build(rows)


class QueueJobBuilder:
    """Builds jobs poll after poll; a plain job whose row is the same object keeps its observation."""

    def __init__(self) -> None:
        self._plain: dict[str, tuple[QueueRow, Observation]] = {}

    def build(self, rows: Iterable[QueueRow]) -> tuple[tuple[Observation, ...], frozenset[str]]:
        groups, contradictory = _group(rows)
        plain: dict[str, tuple[QueueRow, Observation]] = {}
        jobs = []
        for leader, parts in groups.items():
            if leader in contradictory or len({row.uid for row in parts}) > 1:
                contradictory.add(leader)
            elif len(parts) == 1 and parts[0].array_task is None:
                row, last = parts[0], self._plain.get(leader)
                if last is None or last[0] is not row:
                    last = (row, observation(row, leader, row, parts))
                plain[leader] = last
                jobs.append(last[1])
            else:
                jobs.append(_observe(leader, parts))
        self._plain = plain
        return tuple(jobs), frozenset(contradictory)


def _group(rows: Iterable[QueueRow]) -> tuple[dict[str, list[QueueRow]], set[str]]:
    """Rows by the id of their whole job, and the ids that have two different rows."""
    by_id: dict[str, QueueRow] = {}
    groups: dict[str, list[QueueRow]] = {}
    contradictory: set[str] = set()
    for row in rows:
        earlier = by_id.setdefault(row.job_id, row)
        if earlier is row:
            groups.setdefault(row.leader, []).append(row)
        elif earlier != row:
            contradictory.update((row.job_id, row.leader, earlier.leader))
    return groups, contradictory


def _observe(leader: str, parts: Sequence[QueueRow]) -> Observation:
    if any(row.array_task is not None for row in parts):
        return _array(leader, parts)
    ordered = sorted(parts, key=lambda row: row.het_offset)
    return observation(ordered[0], leader, worst_of(ordered), ordered)


def observation(
    identity: QueueRow, leader: str, decisive: QueueRow, parts: Sequence[QueueRow]
) -> Observation:
    """One job: its identity from one row, its state from another, its nodes and times from all."""
    return Observation(
        job_id=leader,
        uid=identity.uid,
        mark=identity.comment,
        comment=identity.comment,
        state=decisive.state,
        live=True,
        name=identity.name,
        user=identity.user,
        reason=decisive.reason,
        exit_code=decisive.exit.code,
        signal=decisive.exit.signal,
        partition=names_in(row.partition for row in parts),
        account=names_in(row.account for row in parts),
        qos=identity.qos,
        nodes=join_unique(row.nodes for row in parts),
        submitted_at=earliest(row.submitted_at for row in parts),
        started_at=earliest(row.started_at for row in parts),
        ended_at=latest_if_all(row.ended_at for row in parts),
        restarts=identity.restarts,
        requeue=identity.requeue,
        stdout=log_path(identity, identity.stdout),
        stderr=log_path(identity, identity.stderr or identity.stdout),
        working_directory=identity.working_directory,
    )


def worst_of(parts: Sequence[QueueRow]) -> QueueRow:
    """The part whose state is the job's: an active one, else waiting, else completing, else the worst end.

    A cancel leaves a completing job alone, so a completing part must not decide while others go on.
    """
    living = [row for row in parts if not has_ended(row.state)]
    if living:
        return min(living, key=lambda row: (row.state == "COMPLETING", is_waiting(row.state)))
    return max(parts, key=lambda row: severity(row.state))


def _array(leader: str, parts: Sequence[QueueRow]) -> Observation:
    ordered = sorted(parts, key=lambda row: int(row.job_id))
    identity = next((row for row in ordered if row.job_id == leader), ordered[0])
    tasks = sorted((task for row in ordered for task in _tasks(leader, row)), key=lambda task: task.index)
    unsplit = [row.array_task or "" for row in ordered if _is_unsplit(row) and is_waiting(row.state)]
    whole = observation(identity, leader, worst_of(ordered), ordered)
    return _with_tasks(whole, tuple(tasks), unsplit, identity)


def _with_tasks(
    whole: Observation, tasks: tuple[TaskObservation, ...], unsplit: Sequence[str], row: QueueRow
) -> Observation:
    """Squeue shows a task that waits again after a start among those that never started."""
    waiting = sum(array_expressions.count(expression) or 1 for expression in unsplit)
    return replace(
        whole,
        tasks=tasks,
        pending_tasks=waiting,
        waiting=tuple(part for expression in unsplit for part in array_expressions.ranges(expression) or ()),
        array_size=len(tasks) + waiting,
        stdout=row.stdout,
        stderr=row.stderr or row.stdout,
    )


def _is_unsplit(row: QueueRow) -> bool:
    return row.array_task is not None and not row.array_task.isdigit()


def _tasks(leader: str, row: QueueRow) -> Iterable[TaskObservation]:
    """Its task; or all tasks that were never split off, where they were cancelled together."""
    if row.array_task is None or (_is_unsplit(row) and is_waiting(row.state)):
        return
    for index in array_expressions.expand(row.array_task):
        job_id = f"{leader}_{index}"
        yield TaskObservation(index, job_id, row.state, row.exit.code, row.exit.signal, row.restarts)


def log_path(row: QueueRow, pattern: str | None) -> str | None:
    if pattern is None:
        return None
    facts = PatternValues(
        row.job_id, row.user, row.name, row.working_directory, first_node=first_host(row.nodes)
    )
    return resolve_pattern(pattern, facts)


def join_unique(words: Iterable[str]) -> str:
    """Each word once, separated as Slurm separates names."""
    return ",".join(dict.fromkeys(filter(None, words)))


def names_in(lists: Iterable[str]) -> str:
    """Each name of Slurm's comma-separated lists, once."""
    return join_unique(name for names in lists for name in names.split(","))


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def latest_if_all(times: Iterable[datetime | None]) -> datetime | None:
    all_times = list(times)
    return max((time for time in all_times if time is not None), default=None) if all(all_times) else None
