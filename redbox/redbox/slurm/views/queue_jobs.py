"""From rows to jobs: an array with all its tasks, a het job with all its parts, is one observation. Pure.

While a part lives the whole lives; when all have ended the worst end counts. Two different rows for one id
make that job doubtful: it is left out and named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from redbox.core.workload_manager import Observation, TaskObservation
from redbox.slurm.commands.squeue import QueueRow
from redbox.slurm.text import array_expressions
from redbox.slurm.text.states import has_ended, has_not_begun, is_waiting, severity
from redbox.slurm.views.output_patterns import LogFacts, first_of, resolve


def fold(rows: Iterable[QueueRow]) -> tuple[tuple[Observation, ...], frozenset[str]]:
    """The jobs, and the ids of those whose rows contradict each other."""
    return Folder().fold(rows)


class Folder:
    """Folds look after look; a plain job whose row is the same object keeps its observation."""

    def __init__(self) -> None:
        self._plain: dict[str, tuple[QueueRow, Observation]] = {}

    def fold(self, rows: Iterable[QueueRow]) -> tuple[tuple[Observation, ...], frozenset[str]]:
        groups, doubtful = _group(rows)
        plain: dict[str, tuple[QueueRow, Observation]] = {}
        jobs = []
        for leader, parts in groups.items():
            if leader in doubtful or len({row.uid for row in parts}) > 1:
                doubtful.add(leader)
            elif len(parts) == 1 and parts[0].array_task is None:
                plain[leader] = self._observe_plain(leader, parts[0])
                jobs.append(plain[leader][1])
            else:
                jobs.append(_observe(leader, parts))
        self._plain = plain
        return tuple(jobs), frozenset(doubtful)

    def _observe_plain(self, leader: str, row: QueueRow) -> tuple[QueueRow, Observation]:
        known = self._plain.get(leader)
        if known is not None and known[0] is row:
            return known
        return row, observation(row, leader, row, [row])


def _group(rows: Iterable[QueueRow]) -> tuple[dict[str, list[QueueRow]], set[str]]:
    """Rows by the id that their whole job goes by, and the ids that have two different rows."""
    seen: dict[str, QueueRow] = {}
    groups: dict[str, list[QueueRow]] = {}
    doubtful: set[str] = set()
    for row in rows:
        earlier = seen.setdefault(row.job_id, row)
        if earlier is row:
            groups.setdefault(row.leader, []).append(row)
        elif earlier != row:
            doubtful.update((row.job_id, row.leader, earlier.leader))
    return groups, doubtful


def _observe(leader: str, parts: Sequence[QueueRow]) -> Observation:
    if any(row.array_task is not None for row in parts):
        return _array(leader, parts)
    ordered = sorted(parts, key=lambda row: row.het_offset)
    return observation(ordered[0], leader, worst_of(ordered), ordered)


def observation(
    identity: QueueRow, leader: str, decisive: QueueRow, parts: Sequence[QueueRow]
) -> Observation:
    """One job: who it is from one row, how it stands from another, its places and times from all."""
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
        nodes=together(row.nodes for row in parts),
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
    """What decides for all: a part that is active, else waits, else is just ending, else the worst end.

    What only ends is left alone by a cancel: so it must not stand for others that go on.
    """
    living = [row for row in parts if not has_ended(row.state)]
    if living:
        return min(living, key=_liveliness)
    return max(parts, key=lambda row: severity(row.state))


def _liveliness(row: QueueRow) -> tuple[bool, bool, bool]:
    """A part that runs first, then one that is held between two runs, then one that waits."""
    return (row.state == "COMPLETING", has_not_begun(row.state), is_waiting(row.state))


def _array(leader: str, parts: Sequence[QueueRow]) -> Observation:
    ordered = sorted(parts, key=lambda row: int(row.job_id))
    identity = next((row for row in ordered if row.job_id == leader), ordered[0])
    tasks = sorted((task for row in ordered for task in _tasks(leader, row)), key=lambda task: task.index)
    unsplit = [row.array_task or "" for row in ordered if _is_unsplit(row) and has_not_begun(row.state)]
    whole = observation(identity, leader, worst_of(ordered), ordered)
    return _with_tasks(whole, tuple(tasks), unsplit, identity)


def _with_tasks(
    whole: Observation, tasks: tuple[TaskObservation, ...], unsplit: Sequence[str], row: QueueRow
) -> Observation:
    """A task that waits again after it had begun is shown by squeue among those that never began."""
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
    """Its task; or, where the tasks that were never split off were cancelled together, all of them."""
    if row.array_task is None or (_is_unsplit(row) and has_not_begun(row.state)):
        return
    for index in array_expressions.expand(row.array_task):
        job_id = f"{leader}_{index}"
        yield TaskObservation(index, job_id, row.state, row.exit.code, row.exit.signal, row.restarts)


def log_path(row: QueueRow, pattern: str | None) -> str | None:
    if pattern is None:
        return None
    facts = LogFacts(row.job_id, row.user, row.name, row.working_directory, first_node=first_of(row.nodes))
    return resolve(pattern, facts)


def together(words: Iterable[str]) -> str:
    """Each once, as Slurm lists them."""
    return ",".join(dict.fromkeys(filter(None, words)))


def names_in(lists: Iterable[str]) -> str:
    """Each name of lists as Slurm writes them, once."""
    return together(name for one in lists for name in one.split(","))


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def latest_if_all(times: Iterable[datetime | None]) -> datetime | None:
    known = list(times)
    return max((time for time in known if time is not None), default=None) if all(known) else None
