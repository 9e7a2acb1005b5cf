"""Waiting for what a test expects to come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WITHIN_S = 110
Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen | None], within_s: float = WITHIN_S, *, what: str = "that") -> Seen:
    """Return what `look` returns, once that is true."""
    began = time.monotonic()
    while not (seen := look()):
        waited_s = time.monotonic() - began
        assert waited_s < within_s, f"it did not come to {what} within {within_s:.0f} s"
        time.sleep(pause_s(waited_s))
    return seen


def pause_s(waited_s: float) -> float:
    """Until the next look: each costs CPU, here and in what answers, of which six workers have two cores."""
    return min(max(0.2, waited_s / 20), 1.0)
