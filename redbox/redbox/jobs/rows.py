"""Records as JSON text for the journal, and back.

Fields at their defaults are left out, so that most rows are a few hundred bytes and a field that is added
later reads as its default in old rows. The key has columns of its own.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime
from typing import Any

from redbox.domain import JobKey, Limits, UnixUser
from redbox.jobs.records import Record, Seen, Stage, shared
from redbox.workload import TaskObservation
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
    """All but key and revision; an array's tasks only at its end, since polls bring them while it lives."""
    body = _told(record, RECORD_DEFAULTS)
    body["user"] = [record.user.name, record.user.uid]
    seen = _told(record.seen, SEEN_DEFAULTS)
    if record.final and record.seen.tasks:
        seen["tasks"] = [[t.index, t.job_id, t.state, t.exit_code, t.signal] for t in record.seen.tasks]
    body["seen"] = seen
    return json.dumps(body, separators=(",", ":"))


def from_text(key: JobKey, revision: int, text: str) -> Record:
    """A record as it was; fields that this release does not know are dropped."""
    data = json.loads(text)
    name, uid = data.pop("user")
    seen = data.pop("seen", {})
    tasks = tuple(TaskObservation(*task) for task in seen.pop("tasks", ()))
    known = _read({field: value for field, value in data.items() if field in RECORD_DEFAULTS})
    known_seen = _read({field: value for field, value in seen.items() if field in SEEN_DEFAULTS})
    known["warnings"] = tuple(known.get("warnings", ()))
    known["limits"] = _limits(known.get("limits", [None, None]))
    known["stage"] = Stage(known.get("stage", Stage.INTENT))
    known["phase"] = Phase(known.get("phase", Phase.SUBMITTING))
    return Record(
        key=key, user=UnixUser(name, uid), revision=revision, seen=Seen(**known_seen, tasks=tasks), **known
    )
