"""What fails for many by one cause: one line in the log for all of them, and one when it is over.

An API server that is away is met by every node and every job at once. What meets it is gathered for a moment,
then told with one example; it is told again only when it has met twice as many.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import structlog

log = structlog.get_logger(__name__)
GATHERS_S = 5.0


@dataclass
class _Cause:
    """Who met it, who does so still, and how many were told."""

    example: str
    why: str
    met: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    told: int = 0
    is_gathering: bool = False


class GroupedWarnings:
    """Those of one kind of thing, each known by its name."""

    def __init__(self, event: str, *, gathers_s: float = GATHERS_S) -> None:
        """`event` is the log's word for it."""
        self._event = event
        self._event_over = f"{event}: over"
        self._gathers_s = gathers_s
        self._causes: dict[str, _Cause] = {}
        self._cause_of: dict[str, str] = {}

    def failed(self, name: str, error: Exception | str) -> None:
        """This thing failed, be it for the first time or again."""
        why = str(error) or "no answer in time"  # a TimeoutError has no words
        key = _without_name(why, name)
        if self._cause_of.get(name) != key:
            self.mended(name)
        self._cause_of[name] = key
        cause = self._causes.setdefault(key, _Cause(name, why))
        cause.met.add(name)
        cause.failing.add(name)
        if not cause.is_gathering and len(cause.met) >= 2 * cause.told:
            cause.is_gathering = True
            asyncio.get_running_loop().call_later(self._gathers_s, self._tell, key, cause)

    def mended(self, name: str) -> None:
        """It failed no more, or is no more."""
        key = self._cause_of.pop(name, None)
        if key is not None:
            cause = self._causes[key]
            cause.failing.discard(name)
            self._end_if_over(key, cause)

    def _tell(self, key: str, cause: _Cause) -> None:
        cause.is_gathering, cause.told = False, len(cause.met)
        log.warning(self._event, count=cause.told, example=cause.example, error=cause.why)
        self._end_if_over(key, cause)

    def _end_if_over(self, key: str, cause: _Cause) -> None:
        """What came and went within a moment is told all the same."""
        if not cause.failing and not cause.is_gathering:
            del self._causes[key]
            log.info(self._event_over, count=len(cause.met), error=cause.why)


def _without_name(why: str, name: str) -> str:
    """The API server quotes names in what it says."""
    for part in name.split("/"):
        why = why.replace(f'"{part}"', '""')
    return why
