"""How many lines of the audit a caller may cause by what has no effect: by refusals and by repetitions.

What changed something is always a line: the requests that may do so are limited themselves. The other lines
have a budget for each user; those beyond it are counted, and once a minute a line says how many there were.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from redbox.core.clock import Clock
from redbox.observability.job_audit import DROPPED, ENTER, REDBOX, Audit, AuditEntry

LINES_PER_S, BURST_LINES = 5.0, 2_000.0
"""130 MB of a user in a day, at most."""
EFFECTIVE = frozenset({"done", "opened", "ended", "tombstone", "unknown"})
MOST_CALLERS = 10_000
STRANGERS = "strangers"
REPORT_S = 60.0


@dataclass
class _Lines:
    left: float
    at: float
    dropped: Counter[str] = field(default_factory=Counter)


class AuditBudget:
    """Passes entries on to `write`; `on_dropped` is called for each that it does not."""

    def __init__(
        self,
        write: Audit,
        clock: Clock,
        on_dropped: Callable[[], object] = int,
        *,
        burst: float = BURST_LINES,
    ) -> None:
        self._write = write
        self._clock = clock
        self._on_dropped = on_dropped
        self._burst = burst
        self._lines: OrderedDict[str, _Lines] = OrderedDict()

    def __call__(self, entry: AuditEntry) -> None:
        if entry.caller == REDBOX or entry.outcome in EFFECTIVE or self._has_room(entry):
            self._write(entry)

    async def run(self) -> None:
        """Report what was dropped, once a minute."""
        while True:
            await asyncio.sleep(REPORT_S)
            self.report()

    def report(self) -> None:
        for name, lines in self._lines.items():
            if lines.dropped:
                self._report(name, lines)

    def _has_room(self, entry: AuditEntry) -> bool:
        name = entry.user or (STRANGERS if entry.act == ENTER else entry.caller)
        lines, now = self._lines_of(name), self._clock.monotonic()
        lines.left = min(self._burst, lines.left + (now - lines.at) * LINES_PER_S)
        lines.at = now
        if lines.left >= 1:
            lines.left -= 1
            return True
        lines.dropped[f"{entry.act} {entry.outcome}"] += 1
        self._on_dropped()
        return False

    def _lines_of(self, name: str) -> _Lines:
        lines = self._lines.setdefault(name, _Lines(self._burst, self._clock.monotonic()))
        self._lines.move_to_end(name)
        if len(self._lines) > MOST_CALLERS:
            self._report(*self._lines.popitem(last=False))
        return lines

    def _report(self, name: str, lines: _Lines) -> None:
        if lines.dropped:
            kinds = ", ".join(f"{kind}: {count}" for kind, count in sorted(lines.dropped.items()))
            detail = f"{lines.dropped.total()} lines without an effect were left out ({kinds})"
            lines.dropped.clear()
            self._write(AuditEntry(name, None, "audit", "", DROPPED, detail=detail))
