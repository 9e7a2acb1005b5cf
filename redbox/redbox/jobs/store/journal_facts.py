"""Numbers among the journal's facts, which are text: one that cannot be read is said at the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from redbox.jobs.errors import JournalUnreadable

T = TypeVar("T")
MALFORMED = (
    ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, RecursionError,
)  # fmt: skip
"""What reading a damaged row raises: a time beyond the year 9999 is an OverflowError, or an OSError."""


def number_in(facts: Mapping[str, str], name: str) -> int:
    """0 where it was never noted."""
    return _read(facts, name, int) or 0


def time_in(facts: Mapping[str, str], name: str) -> datetime | None:
    return _read(facts, name, lambda text: datetime.fromtimestamp(float(text), UTC))


def _read(facts: Mapping[str, str], name: str, read: Callable[[str], T]) -> T | None:
    text = facts.get(name)
    try:
        return None if text is None else read(text)
    except MALFORMED:
        raise JournalUnreadable(
            f"The journal's fact `{name}` cannot be read: it is {text!r:.60}. Move the journal away, keep "
            "it, and run `redbox recover`, which rebuilds one from Slurm's own records."
        ) from None
