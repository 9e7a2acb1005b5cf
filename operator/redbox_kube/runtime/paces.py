"""Bounds on how often something is done about one object: so many times at once, then once in some seconds.

What strangers report about their own objects costs writes to etcd, or work for all: both are held to a pace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

KEPT_AT_LEAST = 1024


@dataclass(slots=True)
class _Budget:
    left: float
    counted_at: float


@dataclass
class Pace:
    """So many at once, and then one in `every_s`, of each key; a key that rests has all of them again."""

    at_once: int
    every_s: float
    now: Callable[[], float] = time.monotonic
    _budgets: dict[str, _Budget] = field(default_factory=dict)
    _kept: int = KEPT_AT_LEAST

    def take(self, key: str) -> float:
        """Take one if there is one; returns the seconds until there is, 0 if it was taken."""
        budget = self._budget(key)
        if budget.left < 1:
            return (1 - budget.left) * self.every_s
        budget.left -= 1
        return 0.0

    def reserve(self, key: str) -> float:
        """Take one in any case; returns the seconds until it may be used."""
        budget = self._budget(key)
        budget.left -= 1
        return max(0.0, -budget.left * self.every_s)

    def forget(self, key: str) -> None:
        self._budgets.pop(key, None)

    def _budget(self, key: str) -> _Budget:
        now = self.now()
        if len(self._budgets) >= self._kept:
            self._forget_rested(now)
        budget = self._budgets.setdefault(key, _Budget(self.at_once, now))
        budget.left = min(self.at_once, budget.left + max(0.0, now - budget.counted_at) / self.every_s)
        budget.counted_at = now
        return budget

    def _forget_rested(self, now: float) -> None:
        self._budgets = {
            key: budget
            for key, budget in self._budgets.items()
            if budget.left + (now - budget.counted_at) / self.every_s < self.at_once
        }
        self._kept = max(KEPT_AT_LEAST, 2 * len(self._budgets))


class PacedCalls:
    """Calls a function with keys; a call that comes too early is made later, once for all of the same key."""

    def __init__(self, call: Callable[[str], None], of_a_key: Pace, of_all: Pace | None = None) -> None:
        self._call = call
        self._of_a_key = of_a_key
        self._of_all = of_all
        self._waiting: set[str] = set()

    def __call__(self, key: str) -> None:
        if key in self._waiting:
            return
        pause_s = self._of_a_key.reserve(key)
        if self._of_all is not None:
            pause_s = max(pause_s, self._of_all.reserve(""))
        if pause_s:
            self._waiting.add(key)
            asyncio.get_running_loop().call_later(pause_s, self._call_late, key)
        else:
            self._call(key)

    def _call_late(self, key: str) -> None:
        self._waiting.discard(key)
        self._call(key)
