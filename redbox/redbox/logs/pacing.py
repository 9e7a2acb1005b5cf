"""How often to look at a file that is silent: as seldom as its silence is long, and never too often in all.

A look costs one round trip to the user's agent and one fstat, which a network file system may ask its server
for; a local one does not, and counts for less. A thousand silent logs cost some hundred looks
a second at most, whatever their number: the budget is shared, and nobody's files can use up another user's
share.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Pace:
    """Seconds between two looks at one file."""

    first: float = 0.1
    longest: float = 5.0
    asleep: float = 10.0  # after `asleep_after` of silence
    asleep_after: float = 600.0
    share: float = 0.2  # of the silence so far
    out_of_reach: float = 1.0  # when nobody could look
    reopen_network: float = 3.0  # how often to open anew on a network file system


def pause_after(silence: float, pace: Pace) -> float:
    """Grows with the silence: a fifth of it, within bounds, so that few looks find nothing."""
    if silence >= pace.asleep_after:
        return pace.asleep
    return min(pace.longest, max(pace.first, silence * pace.share))


BEHIND_S = 0.05  # a timer that fires late is made up for, up to so much


@dataclass
class Budget:
    """So many looks a second, dealt in turn to the users who want some."""

    per_second: float
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _waiting: dict[int, deque[Turn]] = field(default_factory=dict)
    _next_at: float = 0.0
    _dealer: asyncio.Task[None] | None = None

    async def take(self, user: int, cost: float = 1.0) -> None:
        """Wait for this user's turn; `cost` is in looks."""
        if not self._waiting and self.clock() >= self._next_at:
            self._spend(cost)
            return
        turn = Turn(cost, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(user, deque()).append(turn)
        if self._dealer is None or self._dealer.done():
            self._dealer = asyncio.create_task(self._deal())
        await turn.given

    def _spend(self, cost: float) -> None:
        self._next_at = max(self._next_at, self.clock() - BEHIND_S) + cost / self.per_second

    async def _deal(self) -> None:
        """One turn for each waiting user, round and round, at the pace."""
        while self._waiting:
            for user in list(self._waiting):
                pause = self._next_at - self.clock()
                if pause > 0:
                    await self.sleep(pause)
                self._give_turn(user)

    def _give_turn(self, user: int) -> None:
        turns = self._waiting.get(user, deque())
        while turns:
            turn = turns.popleft()
            if not turn.given.done():
                self._spend(turn.cost)
                turn.given.set_result(None)
                break
        if not turns:
            self._waiting.pop(user, None)


@dataclass(frozen=True, slots=True)
class Turn:
    """What somebody waits for, and what it costs."""

    cost: float
    given: asyncio.Future[None]
