"""The part of the event loop's time that the answers of one red-box may take.

The time of TLS, of parsing and of what follows from an event is taken from a balance, which grows with the
clock. While the balance is overdrawn nothing more is read: the connection fills, and TCP slows the sender
down. So bytes, events and handshakes need no bounds per second: of a red-box whose events are expensive,
fewer are read. It is not CPU time, of which a process on a busy node has less than the clock shows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import inf
from types import TracebackType

TURN_S = 0.005
"""After so much work other tasks have their turn, and an overdrawn balance rests until it has as much again:
a pause after each event would cost more than the event."""

SHORTEST_PAUSE_S = 0.001


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
    ) -> None:
        """`share` is seconds in each second; at most `saved_s` is saved while it takes less (inf: no bound).

        The defaults are for a red-box that an administrator vouches for: the list of 50,000 jobs takes 5 s.
        """
        self._share = share
        self._saved_s = saved_s
        self._common = common or CommonShare()
        self.clock = clock
        self._balance = saved_s
        self._counted_at = clock()
        self._turn_s = 0.0
        self.rested_s = 0.0

    def charged(self) -> Charge:
        """Take the time of a block, which has no `await`, from the balance."""
        return Charge(self, self.clock)

    def charge(self, seconds: float) -> None:
        self._balance -= seconds
        self._turn_s += seconds

    async def rest(self) -> float:
        """While the balance is overdrawn; to be awaited before more is read. Returns how long."""
        if self._turn_s >= TURN_S:
            self._turn_s = 0.0
            await asyncio.sleep(0)
        if self._balance < 0:
            self._credit(self._share)  # for the time in which it was not over its share, whatever others took
        if self._balance >= 0:
            return 0.0
        began = self.clock()
        self._common.overdrawn.add(self)
        try:
            while (pause_s := self._pause_s()) > SHORTEST_PAUSE_S:  # noqa: ASYNC110 (what is waited for is time)
                await asyncio.sleep(pause_s)
        finally:
            self._common.overdrawn.discard(self)
        rested = self.clock() - began
        self.rested_s += rested
        return rested

    def _pause_s(self) -> float:
        """How long until there is enough for a turn."""
        rate = min(self._share, self._common.of_each)
        self._credit(rate)
        return (min(TURN_S, self._saved_s) - self._balance) / rate

    def _credit(self, rate: float) -> None:
        now = self.clock()
        self._balance = min(self._saved_s, self._balance + (now - self._counted_at) * rate)
        self._counted_at = now


class Charge:
    """The time of one block."""

    __slots__ = ("_began", "_clock", "_share")

    def __init__(self, share: TimeShare, clock: Callable[[], float]) -> None:
        self._share = share
        self._clock = clock
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._share.charge(self._clock() - self._began)
