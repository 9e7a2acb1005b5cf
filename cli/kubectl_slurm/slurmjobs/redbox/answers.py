"""What is read of red-box's answers. Pure.

A SlurmEndpoint is a tenant's own server, which may answer anything. So each answer is checked once, against
one of the classes here: a field without a default must be there, each value has the type of its field, and
numbers are amounts. Other keys are ignored, so that a later red-box may have more of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_origin, get_type_hints

from kubectl_slurm.errors import PluginError
from kubectl_slurm.terminal.screen import one_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Answer = TypeVar("Answer")
MOST = 2**63
"""Larger numbers are not amounts of anything, and Python cannot divide all of them."""
KINDS: Mapping[object, tuple[tuple[type, ...], str]] = {
    str: ((str,), "text"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}


class AnswerInvalid(PluginError):
    """An answer is not one of red-box, or not of a red-box that fits this plugin."""


@dataclass(frozen=True)
class IdentityAtRedbox:
    """Of /v1/whoami; `accounts` and `partitions`: the only ones that the mapping allows, where it limits."""

    roles: tuple[str, ...]
    user: str = ""
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    slurm_accounts: tuple[str, ...] = ()
    slurm_qos: tuple[str, ...] = ()


@dataclass(frozen=True)
class StartOfJob:
    """Of /v1/jobs/{key}/expected-start."""

    reason: str = ""
    starts_at: str = ""
    not_before: str = ""
    nodes: str = ""


@dataclass(frozen=True)
class TaskOfArray:
    """Of /v1/jobs/{key}: one of its tasks."""

    index: int
    phase: str
    state: str = ""
    exit_code: int | None = None
    signal: int | None = None

    @property
    def words(self) -> str:
        """How it ended."""
        if self.signal:
            return f"{self.state}, signal {self.signal}"
        return f"{self.state}, exit code {self.exit_code}" if self.exit_code else self.state


@dataclass(frozen=True)
class JobTasks:
    """Of /v1/jobs/{key}, of an array whose tasks red-box lists."""

    tasks: tuple[TaskOfArray, ...] = ()


@dataclass(frozen=True)
class AttemptUsage:
    """Of one attempt of a job, by the job's key."""

    key: str
    attempt: int


@dataclass(frozen=True)
class RunningUsage(AttemptUsage):
    """One item of /v1/usage."""

    cpu_seconds: float
    memory_bytes: int


@dataclass(frozen=True)
class RunningUsages:
    """Of /v1/usage."""

    items: tuple[RunningUsage, ...]


@dataclass(frozen=True)
class UsageAtEnd(AttemptUsage):
    """One item of /v1/usage/ended."""

    cpus: int
    allocated_cpu_seconds: int
    elapsed_seconds: int
    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    allocated_memory_bytes: int | None = None
    time_limit_seconds: int | None = None


@dataclass(frozen=True)
class UsagesAtEnd:
    """Of /v1/usage/ended."""

    items: tuple[UsageAtEnd, ...]
    accounting: bool


def read_answer(wanted: type[Answer], document: object) -> Answer:
    """The answer; raises AnswerInvalid with the place of what is wrong."""
    return cast("Answer", _read(wanted, document, ""))


def _read(wanted: object, value: object, place: str) -> object:
    if isinstance(wanted, type) and is_dataclass(wanted):
        return _object(wanted, value, place)
    if get_origin(wanted) is tuple:
        if not isinstance(value, list):
            raise _wrong(place, "a list")
        (each, _) = get_args(wanted)
        return tuple(_read(each, item, f"{place}[{index}]") for index, item in enumerate(value))
    plain = next((kind for kind in get_args(wanted) if kind in KINDS), wanted)  # of `float | None`
    types, name = KINDS[plain]
    if type(value) not in types:  # a bool is an int by isinstance
        raise _wrong(place, name)
    if isinstance(value, int | float) and not 0 <= value < MOST:
        raise _wrong(place, "an amount")
    return value


def _object(wanted: type[DataclassInstance], value: object, place: str) -> object:
    if not isinstance(value, dict):
        raise _wrong(place, "an object")
    hints, given = get_type_hints(wanted), dict[str, Any]()
    for field in fields(wanted):
        key = _camel(field.name)
        if value.get(key) is not None:
            given[field.name] = _read(hints[field.name], value[key], f"{place}.{key}".lstrip("."))
        elif field.default is MISSING:
            raise AnswerInvalid(f"red-box's answer has no {f'{place}.{key}'.lstrip('.')}")
    return wanted(**given)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _wrong(place: str, what: str) -> AnswerInvalid:
    return AnswerInvalid(f"red-box's answer has something else than {what} as {one_line(place)}")
