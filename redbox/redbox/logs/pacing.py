"""How often a silent file is read: less often the longer it is silent, and within a budget for all files.

A read costs one round trip to the user's agent and one fstat, which a network file system may forward to its
server; a local one does not, and costs less. The budget limits reads a second whatever the number of files,
and is shared fairly: the files of one user cannot use up the share of another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from redbox.core.turns import work_for


@dataclass(frozen=True)
class PollIntervals:
    """Seconds between two reads of one file."""

    first: float = 0.1
    longest: float = 5.0
    asleep: float = 10.0  # after `asleep_after` of silence
    asleep_after: float = 600.0
    share: float = 0.2  # of the silence so far
    unavailable: float = 1.0  # after a read that failed
    reopen_network: float = 3.0  # between two opens on a network file system


def pause_after(silence: float, intervals: PollIntervals) -> float:
    """Return a share of the silence, within bounds, so that few reads find nothing."""
    if silence >= intervals.asleep_after:
        return intervals.asleep
    return min(intervals.longest, max(intervals.first, silence * intervals.share))


CATCH_UP_S = 0.05  # the most that a late timer may be made up for


@dataclass
class ReadBudget:
    """A number of reads a second, granted in turn to the users who wait."""

    per_second: float
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _waiting: dict[int, deque[_Turn]] = field(default_factory=dict)
    _next_at: float = 0.0
    _granting: asyncio.Task[None] | None = None

    async def take(self, user: int, cost: float = 1.0) -> None:
        """Wait for this user's turn; `cost` is in reads."""
        if not self._waiting and self.clock() >= self._next_at:
            self._spend(cost)
            return
        turn = _Turn(cost, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(user, deque()).append(turn)
        if self._granting is None or self._granting.done():
            with work_for(None):
                self._granting = asyncio.create_task(self._grant_turns())
        await turn.granted

    def _spend(self, cost: float) -> None:
        self._next_at = max(self._next_at, self.clock() - CATCH_UP_S) + cost / self.per_second

    async def _grant_turns(self) -> None:
        """Grant one turn to each waiting user, round and round."""
        while self._waiting:
            for user in list(self._waiting):
                pause = self._next_at - self.clock()
                if pause > 0:
                    await self.sleep(pause)
                self._grant_turn(user)

    def _grant_turn(self, user: int) -> None:
        turns = self._waiting.get(user, deque())
        while turns:
            turn = turns.popleft()
            if not turn.granted.done():
                self._spend(turn.cost)
                turn.granted.set_result(None)
                break
        if not turns:
            self._waiting.pop(user, None)


@dataclass(frozen=True, slots=True)
class _Turn:
    cost: float
    granted: asyncio.Future[None]
