"""How many lines of the audit a caller may cause by what has no effect: by refusals and by repetitions.

What changed something is always a line: the requests that may do so are limited themselves. The other lines
have a budget for each user; those beyond it are counted, and once a minute a line says how many there were.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable

from redbox.core.clock import Clock
from redbox.core.token_buckets import Rate, TokenBuckets
from redbox.observability.job_audit import DROPPED, ENTER, REDBOX, Audit, AuditEntry

LINES = Rate(5.0, 2_000.0)
"""130 MB of a user in a day, at most."""
EFFECTIVE = frozenset({"done", "opened", "ended", "tombstone", "unknown"})
STRANGERS = "strangers"
REPORT_S = 60.0


class AuditBudget:
    """Passes entries on to `write`; `on_dropped` is called for each that it does not."""

    def __init__(
        self,
        write: Audit,
        clock: Clock,
        on_dropped: Callable[[], object] = int,
        *,
        rate: Rate = LINES,
    ) -> None:
        self._write = write
        self._clock = clock
        self._on_dropped = on_dropped
        self._rate = rate
        self._lines = TokenBuckets[str]()
        self._dropped: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def __call__(self, entry: AuditEntry) -> None:
        if entry.caller == REDBOX or entry.outcome in EFFECTIVE or self._has_room(entry):
            self._write(entry)

    async def run(self) -> None:
        """Report what was dropped, once a minute."""
        while True:
            await asyncio.sleep(REPORT_S)
            self.report()

    def report(self) -> None:
        for name, dropped in self._dropped.items():
            kinds = ", ".join(f"{kind}: {count}" for kind, count in sorted(dropped.items()))
            detail = f"{dropped.total()} lines without an effect were left out ({kinds})"
            self._write(AuditEntry(name, None, "audit", "", DROPPED, detail=detail))
        self._dropped.clear()

    def _has_room(self, entry: AuditEntry) -> bool:
        name = entry.user or (STRANGERS if entry.act == ENTER else entry.caller)
        if not self._lines.of(name, self._rate).wait(self._clock.monotonic()):
            return True
        self._dropped[name][f"{entry.act} {entry.outcome}"] += 1
        self._on_dropped()
        return False
