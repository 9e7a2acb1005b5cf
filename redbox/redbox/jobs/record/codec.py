"""Records as JSON text for the journal, and back.

Fields at their defaults are left out, so that most rows are a few hundred bytes and a field that is added
later reads as its default in old rows. The key has columns of its own.

An array's tasks are in each of its rows, for the queue forgets those that have ended: a server that is
started later learns of them from nobody else. Those that stand alike are one group of ranges, since the row
is written anew whenever one of fifty thousand tasks has ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from redbox.core.domain import JobKey, Limits, UnixUser
from redbox.core.workload_manager import TaskObservation
from redbox.jobs.record.record import Record, Seen, Stage, shared
from redbox_api.models import Phase

TIMES = frozenset(
    {
        "created_at",
        "doubt_since",
        "bound_at",
        "ending_since",
        "absent_since",
        "unanswered_at",
        "final_at",
        "submitted_at",
        "started_at",
        "ended_at",
    }
)
APART = frozenset({"key", "user", "seen", "revision", "tasks"})
OF_ONE_TASK = ("index", "job_id")
SHARED_BY_TASKS = [item.name for item in fields(TaskObservation) if item.name not in OF_ONE_TASK]
standing_of = attrgetter(*SHARED_BY_TASKS)


def _plain(value: object) -> object:
    if isinstance(value, Limits):
        return [_listed(value.accounts), _listed(value.partitions)]
    return value.timestamp() if isinstance(value, datetime) else value


def _listed(names: frozenset[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _limits(listed: list[list[str] | None]) -> Limits:
    limits: Limits = shared(Limits(*(None if names is None else frozenset(names) for names in listed)))
    return limits


def _default(item: Field[Any]) -> object:
    return item.default_factory() if item.default_factory is not MISSING else item.default


RECORD_DEFAULTS = {item.name: _default(item) for item in fields(Record) if item.name not in APART}
SEEN_DEFAULTS = {item.name: _default(item) for item in fields(Seen) if item.name not in APART}


def _told(source: object, defaults: dict[str, object]) -> dict[str, object]:
    pairs = ((name, getattr(source, name), default) for name, default in defaults.items())
    return {name: _plain(value) for name, value, default in pairs if value != default}


def _read(data: dict[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromtimestamp(value, UTC) if name in TIMES else value for name, value in data.items()
    }


def to_text(record: Record) -> str:
    """All but key and revision."""
    body = _told(record, RECORD_DEFAULTS)
    body["user"] = [record.user.name, record.user.uid]
    body["seen"] = _told(record.seen, SEEN_DEFAULTS) | _told_of_tasks(record.seen.tasks, record.job_id)
    return json.dumps(body, separators=(",", ":"))


def from_text(key: JobKey, revision: int, text: str) -> Record:
    """A record as it was; fields that this release does not know are dropped."""
    data = json.loads(text)
    name, uid = data.pop("user")
    seen = data.pop("seen", {})
    tasks = _read_tasks(seen, data.get("job_id"))
    known = _read({field: value for field, value in data.items() if field in RECORD_DEFAULTS})
    known_seen = _read({field: value for field, value in seen.items() if field in SEEN_DEFAULTS})
    known["warnings"] = tuple(known.get("warnings", ()))
    known["limits"] = _limits(known.get("limits", [None, None]))
    known["stage"] = Stage(known.get("stage", Stage.INTENT))
    known["phase"] = Phase(known.get("phase", Phase.SUBMITTING))
    return Record(
        key=key, user=UnixUser(name, uid), revision=revision, seen=Seen(**known_seen, tasks=tasks), **known
    )


# ---------------------------------------------------------------------------------------------- array tasks
# {"task_groups": [["0-9,12", "COMPLETED", 0, null], ...]}: the indexes, then what these tasks share, in the
# order of their fields. {"tasks": [[3, "id", "COMPLETED", 0, null], ...]}: one by one, those whose ids do not
# follow from the array's, and in rows of earlier releases all.


def _told_of_tasks(tasks: Sequence[TaskObservation], leader: str | None) -> dict[str, object]:
    groups: dict[tuple[object, ...], list[int]] = {}
    apart: list[list[object]] = []
    for task in tasks:
        if task.job_id == f"{leader}_{task.index}":
            groups.setdefault(standing_of(task), []).append(task.index)
        else:
            apart.append([task.index, task.job_id, *standing_of(task)])
    together = [[_ranges(indexes), *shared] for shared, indexes in groups.items()]
    told = {"task_groups": together, "tasks": apart}
    return {name: value for name, value in told.items() if value}


def _read_tasks(seen: dict[str, Any], leader: str | None) -> tuple[TaskObservation, ...]:
    tasks = [TaskObservation(*task) for task in seen.pop("tasks", ())]
    for ranges, *told in seen.pop("task_groups", ()):
        known = told[: len(SHARED_BY_TASKS)]
        tasks += [TaskObservation(index, f"{leader}_{index}", *known) for index in _indexes(ranges)]
    return tuple(sorted(tasks, key=attrgetter("index")))


def _ranges(indexes: Sequence[int]) -> str:
    """`0-9,12`, of indexes in ascending order."""
    parts, first, last = [], indexes[0], indexes[0]
    for index in indexes[1:]:
        if index != last + 1:
            parts.append((first, last))
            first = index
        last = index
    parts.append((first, last))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _indexes(ranges: str) -> Iterator[int]:
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
