"""What a caller may cost red-box a second: token buckets by caller, and 429 with the pause until there is room.

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

MOST_CALLERS = 10_000
"""Those that were charged last; of an attacker's making are none of them: the administrator's rules name users."""
SERVICE_FACTOR = 10
"""An operator, or resourced, acts for all users of its Kubernetes cluster."""
BODY_BYTES_PER_S = 4 << 20
"""Of a caller's bodies, by `body_cost`: a fifth of a core, where 20 MiB take a second."""
BODY_BURST_BYTES = 64 << 20
BYTES_PER_VALUE = 300
"""A value in JSON costs as much as so many bytes of a string: 5 us to validate and digest, and 20 more to pack."""


@dataclass(frozen=True)
class Rate:
    """So much a second, after a burst."""

    per_second: float
    burst: float


@dataclass
class CostBudget:
    """A bucket for each caller; the refusal's sentence says `what` was too much, in numbers of `unit`."""

    what: str
    rate: Rate
    unit: tuple[int, str] = (1, "")
    now: Callable[[], float] = time.monotonic
    _charged: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    """By caller: what was left, and when."""

    def refuse_overdrawn(self, caller: Caller, kind: str = "") -> None:
        """Raise TooManyRequestsProblem where the caller's bucket is empty."""
        rate = self._rate_of(caller)
        left = self._left(caller, rate, kind)
        if left > 0:
            return
        size, name = self.unit
        raise TooManyRequestsProblem(
            f"{caller.name} sends {self.what}: {rate.per_second / size:g}{name} a second are its share, after "
            f"{rate.burst / size:g}{name}; send this again later",
            retry_after=max(1, math.ceil(-left / rate.per_second)),
        )

    def charge(self, caller: Caller, cost: float = 1.0, kind: str = "") -> None:
        """Take this much, or raise TooManyRequestsProblem; each `kind` has a bucket of its own."""
        self.refuse_overdrawn(caller, kind)
        name = kind + caller.name
        self._charged[name] = self._left(caller, self._rate_of(caller), kind) - cost, self.now()
        self._charged.move_to_end(name)
        while len(self._charged) > MOST_CALLERS:
            self._charged.popitem(last=False)

    def _left(self, caller: Caller, rate: Rate, kind: str) -> float:
        left, at = self._charged.get(kind + caller.name, (rate.burst, 0.0))
        return min(rate.burst, left + (self.now() - at) * rate.per_second)

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


def body_cost(length: int, values: int) -> int:
    return length + BYTES_PER_VALUE * values
