"""Waiting for what a test expects to come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WITHIN_S = 110
Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen | None], within_s: float = WITHIN_S, *, what: str = "that") -> Seen:
    """Return what `look` returns, once that is true."""
    deadline = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < deadline, f"it did not come to {what} within {within_s:.0f} s"
        time.sleep(0.2)
    return seen
