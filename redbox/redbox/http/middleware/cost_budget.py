"""What a caller may cost red-box a second: token buckets, and 429 with the pause until there is room.

A request is charged before its work is done. It passes while its caller's bucket is not empty, and may
overdraw it: so a request of any cost passes, and its caller then waits for as long as that was worth.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from redbox.core.domain import Caller
from redbox.core.token_buckets import Rate, TokenBucket, TokenBuckets
from redbox.http.answers.problems import TooManyRequestsProblem

LONGEST_PAUSE_S = 60.0
SERVICE_FACTOR = 10
"""An operator, or resourced, acts for all users of a namespace."""
BODY_BYTES_PER_S = 4 << 20
"""Of a caller's bodies, and their values: a fifth of a core, where 20 MiB take a second."""
BODY_BURST_BYTES = 64 << 20
BYTES_PER_VALUE = 300
"""A value in JSON costs as much as so many bytes: 5 us to validate and digest, and 20 more to pack."""


@dataclass
class CostBudget:
    """A bucket for each caller; the refusal's sentence says `what` was too much, in numbers of `unit`."""

    what: str
    rate: Rate
    unit: tuple[int, str] = (1, "")
    now: Callable[[], float] = time.monotonic
    _buckets: TokenBuckets[str] = field(default_factory=TokenBuckets)
    _refused: TokenBuckets[str] = field(default_factory=TokenBuckets)
    """What will come again: it is sent away for pauses of different lengths, or all would come at once."""

    def charge(self, caller: Caller, cost: float = 1.0, kind: str = "") -> None:
        """Take this much, or raise TooManyRequestsProblem; each `kind` has a bucket of its own."""
        self._bucket_with_room(caller, kind, cost).left -= cost

    def overdraw(self, caller: Caller, cost: float) -> None:
        """Take this much of what a charged request turned out to cost."""
        self._buckets.of(caller.name, self._rate_of(caller)).reserve(self.now(), cost)

    def refuse_overdrawn(self, caller: Caller, cost: float) -> None:
        """Raise TooManyRequestsProblem where `charge` would, and take nothing."""
        self._bucket_with_room(caller, "", cost)

    def _bucket_with_room(self, caller: Caller, kind: str, cost: float) -> TokenBucket:
        name, rate, now = kind + caller.name, self._rate_of(caller), self.now()
        bucket = self._buckets.of(name, rate)
        if bucket.fill(now) > 0:
            return bucket
        pause = self._refused.of(name, Rate(rate.per_second, 0.0)).reserve(now, cost)
        size, unit = self.unit
        raise TooManyRequestsProblem(
            f"{caller.name} sends {self.what}: {rate.per_second / size:g}{unit} a second are its share, "
            f"after {rate.burst / size:g}{unit}; send this again later",
            retry_after=min(LONGEST_PAUSE_S, math.ceil(pause - bucket.left / rate.per_second)),
        )

    def _rate_of(self, caller: Caller) -> Rate:
        if caller.user is not None:
            return self.rate
        return Rate(self.rate.per_second * SERVICE_FACTOR, self.rate.burst * SERVICE_FACTOR)


def writes_budget(rate: Rate) -> CostBudget:
    """For requests that change something, each method by itself: a flood of submits delays no cancel."""
    return CostBudget("too many requests that change something", rate)


def body_costs_budget() -> CostBudget:
    """For the work on bodies, which is done for each of them, whatever becomes of its request."""
    what = f"too much in request bodies, where a value in JSON counts {BYTES_PER_VALUE} bytes"
    return CostBudget(what, Rate(BODY_BYTES_PER_S, BODY_BURST_BYTES), (1 << 20, " MiB"))
