"""The part of the event loop's time that the answers of one red-box may take.

TLS, parsing and what follows from an event are measured in CPU time of this thread and taken from a balance,
which grows with the clock. While the balance is overdrawn nothing more is read: the connection fills, and TCP
slows the sender down. So bytes, events and handshakes need no bounds per second: of a red-box that sends
expensive ones fewer are read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

TURN_S = 0.005
"""After so much work other tasks have their turn, and an overdrawn balance rests until it has as much again:
a pause after each event would cost more than the event."""


class CommonShare:
    """What some red-boxes may take together: those that are over their own share divide it equally."""

    def __init__(self, share: float = inf) -> None:
        self._share = share
        self.overdrawn: set[TimeShare] = set()

    @property
    def of_each(self) -> float:
        return self._share / max(1, len(self.overdrawn))


class TimeShare:
    """The balance of one red-box, in seconds."""

    def __init__(
        self,
        share: float = 0.5,
        saved_s: float = 5.0,
        common: CommonShare | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`share` is seconds in each second; at most `saved_s` is saved while it takes less (inf: no bound).

        The defaults are for a red-box that an administrator vouches for: the list of 50,000 jobs takes 5 s.
        """
        self._share = share
        self._saved_s = saved_s
        self._common = common or CommonShare()
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._balance = saved_s
        self._counted_at = clock()
        self._turn_s = 0.0
        self.rested_s = 0.0

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Take the time of this block, which has no `await`, from the balance."""
        began = self._cpu_clock()
        try:
            yield
        finally:
            spent = self._cpu_clock() - began
            self._balance -= spent
            self._turn_s += spent

    async def rest(self) -> float:
        """While the balance is overdrawn; to be awaited before more is read. Returns how long."""
        if self._turn_s >= TURN_S:
            self._turn_s = 0.0
            await asyncio.sleep(0)
        if self._balance >= 0:
            return 0.0
        began = self._clock()
        self._common.overdrawn.add(self)
        try:
            while (pause_s := self._pause_s()) > 0:  # noqa: ASYNC110 (what is waited for is time)
                await asyncio.sleep(pause_s)
        finally:
            self._common.overdrawn.discard(self)
        rested = self._clock() - began
        self.rested_s += rested
        return rested

    def _pause_s(self) -> float:
        """How long until there is enough for a turn."""
        rate, now = min(self._share, self._common.of_each), self._clock()
        self._balance = min(self._saved_s, self._balance + (now - self._counted_at) * rate)
        self._counted_at = now
        return (min(TURN_S, self._saved_s) - self._balance) / rate
