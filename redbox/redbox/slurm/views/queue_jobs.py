"""From squeue's rows to jobs: an array with all its tasks, a het job with all its components, is one job.

A job is alive while one of its parts is; when all have ended the worst end counts. A job is left out, and its
id returned as contradictory, that has two different rows for one id, parts of several users, or parts that no
job has together: a plain job has no components, a heterogeneous one no tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from redbox.core.domain import JobShape
from redbox.core.observations import Observation, TaskObservation
from redbox.slurm.commands.squeue import QueueRow
from redbox.slurm.text import array_expressions
from redbox.slurm.text.states import has_ended, has_not_begun, is_waiting, severity
from redbox.slurm.views.observations import observe, observe_tasks, output_path


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
            if leader in contradictory or not _may_be_one_job(parts):
                contradictory.add(leader)
            elif len(parts) == 1 and parts[0].array_task is None and not parts[0].het_job_id:
                row, last = parts[0], self._plain.get(leader)
                if last is None or last[0] is not row:
                    last = (row, _observe_row(leader, row, row, parts))
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


def _may_be_one_job(parts: Sequence[QueueRow]) -> bool:
    shapes = {row.shape for row in parts}
    # Of tasks that were cancelled while they waited, Slurm may forget that they are tasks.
    living = {row.shape for row in parts if not has_ended(row.state) or row.shape is not JobShape.PLAIN}
    are_of_array = shapes == {JobShape.PLAIN, JobShape.ARRAY} and living == {JobShape.ARRAY}
    return (len(shapes) == 1 or are_of_array) and len({row.uid for row in parts}) == 1


def _observe(leader: str, parts: Sequence[QueueRow]) -> Observation:
    if any(row.array_task is not None for row in parts):
        return _observe_array(leader, parts)
    ordered = sorted(parts, key=lambda row: row.het_offset)
    whole = _observe_row(leader, ordered[0], _decisive_row(ordered), ordered)
    return replace(whole, component_nodes=_nodes_by_offset(ordered))


def _nodes_by_offset(ordered: Sequence[QueueRow]) -> tuple[str, ...]:
    """Empty for a component that Slurm does not show any more, or that has no nodes yet."""
    nodes = {row.het_offset: row.nodes for row in ordered if row.nodes}
    return tuple(nodes.get(offset, "") for offset in range(max(nodes, default=-1) + 1))


def _observe_row(
    leader: str, identity: QueueRow, decisive: QueueRow, parts: Sequence[QueueRow]
) -> Observation:
    stdout, stderr = identity.stdout, identity.stderr or identity.stdout
    return observe(
        identity,
        decisive,
        parts,
        job_id=leader,
        mark=identity.comment,
        live=True,
        restarts=identity.restarts,
        requeue=identity.requeue,
        stdout=output_path(stdout, identity, identity.job_id),
        stderr=output_path(stderr, identity, identity.job_id),
    )


def _decisive_row(parts: Sequence[QueueRow]) -> QueueRow:
    """The part whose state is the job's: an active one, else waiting, else completing, else the worst end.

    A cancel leaves a completing job alone, so a completing part must not decide while others go on.
    """
    living = [row for row in parts if not has_ended(row.state)]
    if living:
        return min(living, key=_liveliness)
    return max(parts, key=lambda row: severity(row.state))


def _liveliness(row: QueueRow) -> tuple[bool, bool, bool]:
    """A part that runs first, then one that is held between two runs, then one that waits."""
    return (row.state == "COMPLETING", has_not_begun(row.state), is_waiting(row.state))


def _observe_array(leader: str, parts: Sequence[QueueRow]) -> Observation:
    """Squeue shows a task that waits again after a start among those that never started."""
    ordered = sorted(parts, key=lambda row: int(row.job_id))
    identity = next((row for row in ordered if row.job_id == leader), ordered[0])
    tasks: list[TaskObservation] = []
    waiting: list[str] = []  # expressions; tasks that were cancelled before they were split off have ended
    for row in ordered:
        expression = row.array_task or "0"
        if has_not_begun(row.state) and not expression.isdigit():
            waiting.append(expression)
        else:
            tasks.extend(observe_tasks(row, leader, row.job_id))
    pending = sum(array_expressions.count(expression) or 1 for expression in waiting)
    return replace(
        _observe_row(leader, identity, _decisive_row(ordered), ordered),
        tasks=tuple(sorted(tasks, key=lambda task: task.index)),
        pending_tasks=pending,
        waiting=tuple(part for expression in waiting for part in array_expressions.ranges(expression) or ()),
        array_size=len(tasks) + pending,
        stdout=identity.stdout,
        stderr=identity.stderr or identity.stdout,
    )
