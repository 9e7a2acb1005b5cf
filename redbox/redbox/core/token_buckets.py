"""Token buckets: so much a second, after a burst."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")
MOST_BUCKETS = 10_000
ROUNDING = 1e-6  # a wait that was slept to its end is over, whatever the last digit says


@dataclass(frozen=True)
class Rate:
    """So much a second, after a burst."""

    per_second: float
    burst: float


class TokenBucket:
    """It is full at first; what is taken in advance leaves it below zero."""

    __slots__ = ("_at", "left", "rate")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.left = rate.burst
        self._at = float("-inf")

    def fill(self, now: float) -> float:
        """Add what has come since the last time; returns what is there."""
        self.left = min(self.rate.burst, self.left + (now - self._at) * self.rate.per_second)
        self._at = now
        return self.left

    def wait(self, now: float) -> float:
        """Seconds until one may be taken; 0 takes it."""
        if self.fill(now) > 1 - ROUNDING:
            self.left -= 1
            return 0.0
        return (1 - self.left) / self.rate.per_second

    def reserve(self, now: float, cost: float = 1.0) -> float:
        """Take the next tokens in any case, in the order of calls; returns the seconds until they are due."""
        self.left = self.fill(now) - cost
        return max(0.0, -self.left / self.rate.per_second)


class TokenBuckets(Generic[Key]):
    """A bucket for each key; those that were used last are kept."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Key, TokenBucket] = OrderedDict()

    def of(self, key: Key, rate: Rate) -> TokenBucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(rate)
            if len(self._buckets) > MOST_BUCKETS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        return bucket
