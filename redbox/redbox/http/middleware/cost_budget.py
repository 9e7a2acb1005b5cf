"""What a caller may cost red-box a second: token buckets, and 429 with the pause until there is room.

A request is charged before its work is done. It passes while its caller's bucket is not empty, and may
overdraw it: so a request of any cost passes, and its caller then waits for as long as that was worth.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from redbox.core.domain import Caller
from redbox.http.answers.problems import TooManyRequestsProblem

MOST_BUCKETS = 10_000
"""Those that were used last. Only the administrator's rules make callers."""
LONGEST_PAUSE_S = 60.0
SERVICE_FACTOR = 10
"""An operator, or resourced, acts for all users of a namespace."""
BODY_BYTES_PER_S = 4 << 20
"""Of a caller's bodies, and their values: a fifth of a core, where 20 MiB take a second."""
BODY_BURST_BYTES = 64 << 20
BYTES_PER_VALUE = 300
"""A value in JSON costs as much as so many bytes: 5 us to validate and digest, and 20 more to pack."""


@dataclass(frozen=True)
class Rate:
    """So much a second, after a burst."""

    per_second: float
    burst: float


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float
    refused: float = 0.0
    """That will come again."""

    def fill(self, rate: Rate, now: float) -> None:
        gained = (now - self.at) * rate.per_second
        self.left = min(rate.burst, self.left + gained)
        self.refused = max(0.0, self.refused - gained)
        self.at = now


@dataclass
class CostBudget:
    """A bucket for each caller; the refusal's sentence says `what` was too much, in numbers of `unit`."""

    what: str
    rate: Rate
    unit: tuple[int, str] = (1, "")
    now: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, _Bucket] = field(default_factory=OrderedDict)

    def charge(self, caller: Caller, cost: float = 1.0, kind: str = "") -> None:
        """Take this much, or raise TooManyRequestsProblem; each `kind` has a bucket of its own."""
        self._bucket_with_room(caller, kind, cost).left -= cost

    def overdraw(self, caller: Caller, cost: float) -> None:
        """Take this much of what a charged request turned out to cost."""
        self._bucket(caller.name, self._rate_of(caller)).left -= cost

    def refuse_overdrawn(self, caller: Caller, cost: float) -> None:
        """Raise TooManyRequestsProblem where `charge` would, and take nothing."""
        self._bucket_with_room(caller, "", cost)

    def _bucket_with_room(self, caller: Caller, kind: str, cost: float) -> _Bucket:
        """Raise where it has none, with a pause that grows with those before: else all come at one time."""
        rate = self._rate_of(caller)
        bucket = self._bucket(kind + caller.name, rate)
        if bucket.left > 0:
            return bucket
        bucket.refused += cost
        size, name = self.unit
        raise TooManyRequestsProblem(
            f"{caller.name} sends {self.what}: {rate.per_second / size:g}{name} a second are its share, "
            f"after {rate.burst / size:g}{name}; send this again later",
            retry_after=min(LONGEST_PAUSE_S, math.ceil((bucket.refused - bucket.left) / rate.per_second)),
        )

    def _bucket(self, name: str, rate: Rate) -> _Bucket:
        now = self.now()
        bucket = self._buckets.setdefault(name, _Bucket(rate.burst, now))
        bucket.fill(rate, now)
        self._buckets.move_to_end(name)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return bucket

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
