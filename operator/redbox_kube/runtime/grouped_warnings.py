"""Failures of many objects by one cause: one log line for all of them, and one when it is over.

An API server that is away fails every node and every job at once. The failures of some seconds are logged as
one line with one example; the next line follows when twice as many have failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

log = structlog.get_logger(__name__)
GATHERS_S = 5.0


@dataclass
class _Cause:
    """The objects that it has failed, those that still fail, and how many were logged."""

    example: str
    error: str
    affected: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    logged: int = 0
    is_gathering: bool = False


class GroupedWarnings:
    """Failures of objects of one kind, by name."""

    def __init__(self, event: str, *, gathers_s: float = GATHERS_S) -> None:
        """`event` is the event in the log."""
        self._event = event
        self._event_over = f"{event}: over"
        self._gathers_s = gathers_s
        self._causes: dict[str, _Cause] = {}
        self._cause_of: dict[str, str] = {}

    @property
    def failing(self) -> Mapping[str, str]:
        """The objects that fail now, and why."""
        return self._cause_of

    def failed(self, name: str, error: Exception | str) -> None:
        """This object failed, for the first time or again."""
        why = str(error) or _without_message(error)
        key = _without_name(why, name)
        if self._cause_of.get(name) != key:
            self.recovered(name)
        self._cause_of[name] = key
        cause = self._causes.setdefault(key, _Cause(name, why))
        cause.affected.add(name)
        cause.failing.add(name)
        if not cause.is_gathering and len(cause.affected) >= 2 * cause.logged:
            cause.is_gathering = True
            asyncio.get_running_loop().call_later(self._gathers_s, self._log, key, cause)

    def recovered(self, name: str) -> None:
        """This object does not fail any more, or is gone."""
        key = self._cause_of.pop(name, None)
        if key is not None:
            cause = self._causes[key]
            cause.failing.discard(name)
            self._end_if_over(key, cause)

    def _log(self, key: str, cause: _Cause) -> None:
        cause.is_gathering, cause.logged = False, len(cause.affected)
        log.warning(self._event, count=cause.logged, example=cause.example, error=cause.error)
        self._end_if_over(key, cause)

    def _end_if_over(self, key: str, cause: _Cause) -> None:
        """Not before the first line: a failure that is over within seconds is logged as well."""
        if not cause.failing and not cause.is_gathering:
            del self._causes[key]
            log.info(self._event_over, count=len(cause.affected), error=cause.error)


def _without_message(error: Exception | str) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__


def _without_name(why: str, name: str) -> str:
    """The API server quotes names in its messages."""
    for part in name.split("/"):
        why = why.replace(f'"{part}"', '""')
    return why
