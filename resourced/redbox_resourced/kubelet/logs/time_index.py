"""How long the logs of containers were at which time, as far as readers of this resourced have seen them.

The files have no times. All that was there at a time is older than it: so a reader who wants the lines since
then begins at the last length that was seen before it, and gets those lines and perhaps some before them.
Without any, as after a restart of resourced, it begins at the first byte. That is what clients need that read
on after a pause, such as Airflow: no line is lost.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

MOST_OFFSETS = 32
"""Of one log; of older ones every second is dropped."""
MOST_STARTS = 64
"""Of all containers of one pod: the logs that were read last."""
APART = timedelta(seconds=0.5)
NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class TimedOffset(NamedTuple):
    """A position at the end of a line, and a time at which all before it was there."""

    at: datetime
    generation: str
    offset: int


@dataclass
class LogTimeIndex:
    """Of one start of one container, oldest first."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _seen: list[TimedOffset] = field(default_factory=list)

    def read(self, piece: bytes, generation: str, offset: int) -> None:
        """A reader has got this piece; it begins there."""
        end = piece.rfind(b"\n") + 1
        last, now = self._seen[-1] if self._seen else None, self.now()
        if not end or (last and last.generation == generation and last.offset >= offset + end):
            return
        before_last = self._seen[-2] if len(self._seen) > 1 else None
        if last and before_last and last.at - before_last.at < APART:
            self._seen.pop()  # it is the newest no more
        self._seen.append(TimedOffset(now, generation, offset + end))
        if len(self._seen) > MOST_OFFSETS:
            self._seen = self._seen[:-1:2] + self._seen[-1:]

    def before(self, time: datetime) -> TimedOffset | None:
        """From where all lines since this time are read."""
        return next((timed for timed in reversed(self._seen) if timed.at <= time), None)


class PodLogTimeIndexes:
    """Of all pods that have been read, by their uids."""

    def __init__(self) -> None:
        self._by_pod: defaultdict[str, OrderedDict[tuple[str, int], LogTimeIndex]] = defaultdict(OrderedDict)

    def of(self, uid: str, container: str, restart: int) -> LogTimeIndex:
        logs = self._by_pod[uid]
        found = logs.setdefault((container, restart), LogTimeIndex())
        logs.move_to_end((container, restart))
        while len(logs) > MOST_STARTS:
            logs.popitem(last=False)
        return found

    def forget(self, uid: str) -> None:
        self._by_pod.pop(uid, None)
