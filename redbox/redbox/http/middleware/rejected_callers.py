"""Rejected callers in the audit: a line for the first rejection, then one a minute while it goes on.

The number of rejections is decided by strangers, so the lines that they can cause are bounded. The metrics
count every rejection all the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from redbox.callers.errors import NotMapped, Unauthenticated
from redbox.core.clock import Clock
from redbox.core.domain import Caller
from redbox.http.answers.problems import TooManyRequestsProblem
from redbox.http.middleware.request_middleware import logged_path
from redbox.observability.job_audit import ENTER, AuditEntry

REPEAT_S = 60.0
MAX_REJECTIONS = 1000
UNKNOWN = "unknown"
OUTCOMES: dict[type[Exception], str] = {
    Unauthenticated: "Unauthenticated",
    NotMapped: "NotMapped",
    TooManyRequestsProblem: "TooMany",
}
_RejectionKey = tuple[str, str, str]  # address, identity, outcome


@dataclass
class _Rejection:
    recorded_at: float
    suppressed: int = 0


class RejectionAudit:
    """Records rejections, and suppresses those that repeat a recent one."""

    def __init__(self, write: Callable[[AuditEntry], None], clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._recent: OrderedDict[_RejectionKey, _Rejection] = OrderedDict()

    def record(self, request: HTTPConnection, error: Exception, caller: Caller | None) -> None:
        address = request.client.host if request.client else "this host"
        identity = caller.identity if caller else str(getattr(error, "identity", UNKNOWN))
        outcome = OUTCOMES[type(error)]
        key = address, identity, outcome
        recent = self._recent.get(key)
        now = self._clock.monotonic()
        if recent is not None and now - recent.recorded_at < REPEAT_S:
            recent.suppressed += 1
            return
        repeats = (
            f" ({recent.suppressed} times more since)" if recent is not None and recent.suppressed else ""
        )
        self._recent[key] = _Rejection(now)
        self._recent.move_to_end(key)
        while len(self._recent) > MAX_REJECTIONS:
            self._recent.popitem(last=False)
        route = f"{request.scope.get('method', 'GET')} {logged_path(request)[:100]} from {address}"
        user = caller.user.name if caller and caller.user else None
        self._write(AuditEntry(identity, user, ENTER, "", outcome, detail=f"{route}: {error}{repeats}"))
