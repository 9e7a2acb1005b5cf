"""Records as JSON text for the journal, and back.

A stored key is its field's name and never changes, since a journal outlives releases. Fields at their
defaults are left out, so that most rows are a few hundred bytes and a field that is added later reads as its
default in old rows. The key has columns of its own.

An array's tasks are stored in each of its rows, because the queue forgets those that have ended: a server
that starts later has no other source. Tasks with equal states are one group of ranges, since the row is
written again whenever one of fifty thousand tasks ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from typing import Any

from redbox.core.domain import JobKey, JobShape, Limits, UnixUser
from redbox.core.observations import ObservedStatus, TaskObservation
from redbox.jobs.record.record import JobDependency, JobRecord, Stage, shared
from redbox_api.models import Phase

encode_json = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make one for each record
MAX_ARRAY_SIZE = 4_000_001  # that of Slurm
APART = frozenset({"key", "user", "status", "revision", "tasks"})  # fields that are stored otherwise


def _stored_fields(record_type: type[JobRecord | ObservedStatus]) -> dict[str, Field[Any]]:
    return {item.name: item for item in fields(record_type) if item.name not in APART}


RECORD_FIELDS = _stored_fields(JobRecord)
STATUS_FIELDS = _stored_fields(ObservedStatus)
FIELDS_OF_ONE_TASK = ("index", "job_id")
FIELDS_OF_A_GROUP = [item.name for item in fields(TaskObservation) if item.name not in FIELDS_OF_ONE_TASK]
group_of = attrgetter(*FIELDS_OF_A_GROUP)


def to_text(record: JobRecord) -> str:
    """All but key and revision."""
    body = _encode(record, RECORD_ENCODING)
    body["user"] = [record.user.name, record.user.uid]
    status = record.status
    body["seen"] = _encode(status, STATUS_ENCODING) | _encode_tasks(status.tasks, record.job_id)
    return encode_json(body)


def from_text(key: JobKey, revision: int, text: str, *, with_tasks: bool = True) -> JobRecord:
    """A record as it was; keys that this release does not use are dropped.

    Tasks are checked also where they are left out: an array of 50,000 takes 0.1 s to build.
    """
    data = json.loads(text)
    user = _decode_user(data.pop("user"))
    stored_status = data.pop("seen", {})
    tasks = _decode_tasks(stored_status, data.get("job_id"), build=with_tasks)
    observed = _decode(stored_status, STATUS_FIELDS)
    observed["component_nodes"] = _texts("component_nodes", observed.get("component_nodes", []))
    status = ObservedStatus(**observed, tasks=tasks)
    values = _decode(data, RECORD_FIELDS)
    values["warnings"] = _texts("warnings", values.get("warnings", []))
    dependencies = values.get("dependencies", [])
    values["dependencies"] = tuple(JobDependency(*_texts("dependencies", parts)) for parts in dependencies)
    values["limits"] = _decode_limits(values.get("limits", [None, None]))
    if "shape" in values:
        values["shape"] = JobShape(values["shape"])
    values["stage"] = Stage(values.get("stage", Stage.INTENT))
    values["phase"] = Phase(values.get("phase", Phase.SUBMITTING))
    return JobRecord(key=key, user=user, revision=revision, status=status, **values)


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
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key in stored:
            _check(key, value, stored[key])
            values[stored[key].name] = datetime.fromtimestamp(value, UTC) if key in TIMES else value
    return values


NONE = type(None)
TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, NONE),
    "bool": (bool,),
    "bool | None": (bool, NONE),
    "int": (int,),
    "int | None": (int, NONE),
    "datetime": (int, float),
    "datetime | None": (int, float),
}
"""Of the JSON, by the field's: a damaged row must not become a record that cannot be shown."""


def _check(name: str, value: object, item: Field[Any]) -> None:
    if type(value) not in TYPES.get(str(item.type), (type(value),)):
        raise TypeError(f"{name} is {value!r:.60}")
    if type(value) is str and not value.isascii():
        value.encode()  # JSON has lone surrogates, of which no answer can be made


def _texts(name: str, value: Any) -> tuple[Any, ...]:  # noqa: ANN401 (of JSON)
    if type(value) is not list or any(type(text) not in (str, NONE) for text in value):
        raise TypeError(f"{name} is {value!r:.60}")
    return tuple(value)


TIMES = frozenset(
    key for key, item in (RECORD_FIELDS | STATUS_FIELDS).items() if str(item.type).startswith("datetime")
)


def _decode_limits(listed: list[list[str] | None]) -> Limits:
    parts = (None if names is None else frozenset(_texts("limits", names)) for names in listed)
    limits: Limits = shared(Limits(*parts))
    return limits


def _decode_user(stored: list[Any]) -> UnixUser:
    name, uid = stored
    if type(name) is not str or type(uid) is not int:
        raise TypeError(f"user is {stored!r:.60}")
    return UnixUser(name, uid)


# ---------------------------------------------------------------------------------------------- array tasks
# {"task_groups": [["0-9,12", "COMPLETED", 0, null], ...]}: the indexes, then what these tasks share, in the
# order of their fields. {"tasks": [[3, "id", "COMPLETED", 0, null], ...]}: one by one, those whose ids do not
# follow from the array's. What is empty at the end is left out.


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


def _decode_tasks(status: dict[str, Any], leader: str | None, *, build: bool) -> tuple[TaskObservation, ...]:
    tasks = [_decode_task(task) for task in status.pop("tasks", ())]
    for ranges, *values in status.pop("task_groups", ()):
        shared_values = values[: len(FIELDS_OF_A_GROUP)]
        _decode_task([0, "", *shared_values])
        indexes = chain.from_iterable(_read_ranges(ranges))
        if build:
            tasks += [TaskObservation(index, f"{leader}_{index}", *shared_values) for index in indexes]
    return tuple(sorted(tasks, key=attrgetter("index"))) if build else ()


def _decode_task(stored: Sequence[Any]) -> TaskObservation:
    for item, value in zip(fields(TaskObservation), stored, strict=False):
        _check(f"the task's {item.name}", value, item)
    return TaskObservation(*stored)


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


def _read_ranges(text: str) -> list[range]:
    ranges = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        ranges.append(range(int(first), int(last or first) + 1))
    if (count := sum(map(len, ranges))) > MAX_ARRAY_SIZE:
        raise ValueError(f"an array has {count} tasks")
    return ranges
