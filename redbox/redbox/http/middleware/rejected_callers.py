"""Who was not let in goes into the audit: a line for the first time, and one a minute while it goes on.

Strangers decide how often that is, so what they can write is bounded. Every refusal is counted in the metrics
all the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from redbox.core.clock import Clock
from redbox.core.domain import Caller
from redbox.observability.job_audit import Deed

AGAIN_S = 60.0
MOST_REMEMBERED = 1000
NOBODY = "unknown"
_Who = tuple[str, str, str]  # from where, who, what was said to them


@dataclass
class _Repeated:
    told_at: float
    untold: int = 0


class Refusals:
    """Tells of them, and remembers of whom it told lately."""

    def __init__(self, tell: Callable[[Deed], None], clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._lately: OrderedDict[_Who, _Repeated] = OrderedDict()

    def refused(self, request: HTTPConnection, error: Exception, caller: Caller | None) -> None:
        """Somebody was refused before it came to a job."""
        place = request.client.host if request.client else "this host"
        who = caller.identity if caller else str(getattr(error, "identity", NOBODY))
        what = type(error).__name__
        known = self._lately.get((place, who, what))
        now = self._clock.monotonic()
        if known is not None and now - known.told_at < AGAIN_S:
            known.untold += 1
            return
        again = f" ({known.untold} times more since)" if known is not None and known.untold else ""
        self._lately[place, who, what] = _Repeated(now)
        self._lately.move_to_end((place, who, what))
        while len(self._lately) > MOST_REMEMBERED:
            self._lately.popitem(last=False)
        asked = f"{request.scope['method']} {request.url.path[:100]} from {place}"
        user = caller.user.name if caller and caller.user else None
        self._tell(Deed(who, user, "enter", "", what, detail=f"{asked}: {error}{again}"))
