"""Records as JSON text for the journal, and back.

Stored keys are listed here and never change, whatever a field is called: a journal outlives releases. Fields
at their defaults are left out, so that most rows are a few hundred bytes and a field that is added later
reads as its default in old rows. The key has columns of its own.

An array's tasks are stored in each of its rows, because the queue forgets those that have ended: a server
that starts later has no other source. Tasks with equal states are one group of ranges, since the row is
written again whenever one of fifty thousand tasks ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from redbox.core.domain import JobKey, JobShape, Limits, UnixUser
from redbox.core.workload_manager import TaskObservation
from redbox.jobs.record.record import JobDependency, JobRecord, ObservedStatus, Stage, shared
from redbox_api.models import FINAL_PHASES, Phase

RENAMED = {  # field: its key in the journal, which is the name that it had first
    "last_submit_at": "doubt_since",
    "held_retry": "unproven",
    "limits_exceeded": "beyond",
}
encode_json = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make one for each record
APART = frozenset({"key", "user", "status", "revision", "tasks"})  # fields that are stored otherwise


def _stored_fields(record_type: type[JobRecord | ObservedStatus]) -> dict[str, Field[Any]]:
    return {RENAMED.get(item.name, item.name): item for item in fields(record_type) if item.name not in APART}


RECORD_FIELDS = _stored_fields(JobRecord)
STATUS_FIELDS = _stored_fields(ObservedStatus)
FIELDS_OF_ONE_TASK = ("index", "job_id")
FIELDS_OF_A_GROUP = [item.name for item in fields(TaskObservation) if item.name not in FIELDS_OF_ONE_TASK]
group_of = attrgetter(*FIELDS_OF_A_GROUP)


@dataclass(frozen=True, slots=True)
class StoredOutline:
    """These of a record's fields and properties, as they are called there."""

    user: UnixUser
    mark: str
    stage: Stage
    phase: Phase
    settled_at: datetime
    watched: bool


def to_text(record: JobRecord) -> str:
    """All but key and revision."""
    body = _encode(record, RECORD_ENCODING)
    body["user"] = [record.user.name, record.user.uid]
    status = record.status
    body["seen"] = _encode(status, STATUS_ENCODING) | _encode_tasks(status.tasks, record.job_id)
    return encode_json(body)


def from_text(key: JobKey, revision: int, text: str) -> JobRecord:
    """A record as it was; keys that this release does not use are dropped."""
    data = json.loads(text)
    user = UnixUser(*data.pop("user"))
    stored_status = data.pop("seen", {})
    tasks = _decode_tasks(stored_status, data.get("job_id"))
    observed = _decode(stored_status, STATUS_FIELDS)
    observed["component_nodes"] = tuple(observed.get("component_nodes", ()))
    status = ObservedStatus(**observed, tasks=tasks)
    values = _decode(data, RECORD_FIELDS)
    values["warnings"] = tuple(values.get("warnings", ()))
    values["dependencies"] = tuple(JobDependency(*parts) for parts in values.get("dependencies", ()))
    values["limits"] = _decode_limits(values.get("limits", [None, None]))
    if "shape" in values:
        values["shape"] = JobShape(values["shape"])
    values["stage"] = Stage(values.get("stage", Stage.INTENT))
    values["phase"] = Phase(values.get("phase", Phase.SUBMITTING))
    return JobRecord(key=key, user=user, revision=revision, status=status, **values)


def outline_from_text(text: str) -> StoredOutline:
    """The little of a stored record that is needed of all of them: a start reads a hundred thousand."""
    data = json.loads(text)
    phase = Phase(data.get("phase", Phase.SUBMITTING))
    settled_at = data.get("final_at") or data[RENAMED["last_submit_at"]]
    return StoredOutline(
        user=shared(UnixUser(*data["user"])),
        mark=data["mark"],
        stage=Stage(data.get("stage", Stage.INTENT)),
        phase=phase,
        settled_at=datetime.fromtimestamp(settled_at, UTC),
        watched=phase not in FINAL_PHASES or bool(data.get("in_queue") or data.get("credentials")),
    )


def _default(item: Field[Any]) -> object:
    return item.default_factory() if item.default_factory is not MISSING else item.default


@dataclass(frozen=True)
class _Encoding:
    """Of a record's type: the stored keys, what reads their values, and the defaults."""

    keys: tuple[str, ...]
    values: Callable[[object], tuple[object, ...]]
    defaults: tuple[object, ...]


def _encoding(stored: Mapping[str, Field[Any]]) -> _Encoding:
    values = attrgetter(*(item.name for item in stored.values()))
    return _Encoding(tuple(stored), values, tuple(map(_default, stored.values())))


RECORD_ENCODING = _encoding(RECORD_FIELDS)
STATUS_ENCODING = _encoding(STATUS_FIELDS)


def _encode(source: object, encoding: _Encoding) -> dict[str, object]:
    values = zip(encoding.keys, encoding.values(source), encoding.defaults, strict=True)
    return {
        key: _encode_value(value)
        for key, value, default in values
        if value is not default and value != default
    }


def _encode_value(value: object) -> object:
    if isinstance(value, Limits):
        return [None if names is None else sorted(names) for names in (value.accounts, value.partitions)]
    return value.timestamp() if isinstance(value, datetime) else value


def _decode(data: Mapping[str, Any], stored: Mapping[str, Field[Any]]) -> dict[str, Any]:
    return {
        stored[key].name: datetime.fromtimestamp(value, UTC) if key in TIMES else value
        for key, value in data.items()
        if key in stored
    }


TIMES = frozenset(
    key for key, item in (RECORD_FIELDS | STATUS_FIELDS).items() if str(item.type).startswith("datetime")
)


def _decode_limits(listed: list[list[str] | None]) -> Limits:
    limits: Limits = shared(Limits(*(None if names is None else frozenset(names) for names in listed)))
    return limits


# ---------------------------------------------------------------------------------------------- array tasks
# {"task_groups": [["0-9,12", "COMPLETED", 0, null], ...]}: the indexes, then what these tasks share, in the
# order of their fields. {"tasks": [[3, "id", "COMPLETED", 0, null], ...]}: one by one, those whose ids do not
# follow from the array's, and in rows of earlier releases all. What is empty at the end is left out.


def _encode_tasks(tasks: Sequence[TaskObservation], leader: str | None) -> dict[str, object]:
    groups: dict[tuple[object, ...], list[int]] = {}
    apart: list[list[object]] = []
    for task in tasks:
        if task.job_id == f"{leader}_{task.index}":
            groups.setdefault(group_of(task), []).append(task.index)
        else:
            apart.append([task.index, task.job_id, *_trimmed(group_of(task))])
    together = [[_ranges(indexes), *_trimmed(shared)] for shared, indexes in groups.items()]
    stored = {"task_groups": together, "tasks": apart}
    return {key: value for key, value in stored.items() if value}


def _decode_tasks(status: dict[str, Any], leader: str | None) -> tuple[TaskObservation, ...]:
    tasks = [TaskObservation(*task) for task in status.pop("tasks", ())]
    for ranges, *values in status.pop("task_groups", ()):
        shared_values = values[: len(FIELDS_OF_A_GROUP)]
        tasks += [TaskObservation(index, f"{leader}_{index}", *shared_values) for index in _indexes(ranges)]
    return tuple(sorted(tasks, key=attrgetter("index")))


def _trimmed(values: Sequence[object]) -> Sequence[object]:
    while values and values[-1] == "":
        values = values[:-1]
    return values


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
