"""The event loop of red-box: asyncio's own, in which callers take turns.

Each callback and each step of a task carries the context that it was created in, and so whose work it is
(`core.turns`). Work of no caller runs as in any loop; the rest waits for its share's turn. Then the loop
looks for new events, at the latest after `TURN_S`: the work of a caller who waited for nothing is in front.
"""

from __future__ import annotations

import asyncio
import math
from asyncio.events import Handle
from collections.abc import Callable
from contextvars import Context
from time import perf_counter
from typing import Any

import structlog

from redbox.core.turns import Share, TurnQueue, working_for
from redbox.server.file_watch import FileWatch

log = structlog.get_logger(__name__)
REPORT_EVERY_S = 30.0
HEAVY = 0.5
"""Of the time between two reports, used by one share."""
TURN_S = 0.0005
LONGEST_TURN_S = 0.004
"""Where a look at all connections takes long, because many of them wait."""


class FairEventLoop(asyncio.SelectorEventLoop):
    """asyncio's loop with a queue for each share."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._files = FileWatch()
        super().__init__(self._files)
        self._clock = clock
        self.turns: TurnQueue[Handle] = TurnQueue()
        self._has_turn = False
        self._own = Context()
        self._turn_ended_at = math.inf

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> Handle:
        owner = working_for.get() if context is None else context.get(working_for)
        if owner is None:
            return super().call_soon(callback, *args, context=context)
        self._check_closed()  # type: ignore[attr-defined]
        handle = Handle(callback, args, self, context)
        self._wait(owner.share, handle)
        return handle

    def _add_callback(self, handle: Handle) -> None:
        """A file is ready, and may be reported again before its reader has run."""
        owner = handle._context.get(working_for)  # type: ignore[attr-defined] # noqa: SLF001
        if owner is None:
            super()._add_callback(handle)  # type: ignore[misc]
        elif self._files.waits(handle):
            self._wait(owner.share, handle)

    def _wait(self, share: Share, handle: Handle) -> None:
        self.turns.add(share, handle, self._clock())
        if not self._has_turn:
            self._has_turn = True
            super().call_soon(self._take_turns, context=self._own)

    def _take_turns(self) -> None:
        turns, now = self.turns, self._clock()
        until = now + min(LONGEST_TURN_S, max(TURN_S, now - self._turn_ended_at))
        try:
            while turns and now < until:
                share, handle = turns.take(now)
                begun = now
                try:
                    if not handle.cancelled():
                        handle._run()  # noqa: SLF001
                finally:
                    self._files.has_run(handle)
                    now = self._clock()
                    turns.used(share, now - begun, now)
        finally:
            self._has_turn = bool(turns)
            self._turn_ended_at = now if turns else math.inf
            if turns:
                super().call_soon(self._take_turns, context=self._own)


async def report_heavy_shares(turns: TurnQueue[Any], every_s: float = REPORT_EVERY_S) -> None:
    """Log, for administrators, who uses most of the event loop: it is slow for that caller alone."""
    while True:
        turns.recent_s.clear()
        await asyncio.sleep(every_s)
        for share, used_s in turns.recent_s.items():
            if used_s > HEAVY * every_s:
                log.warning(
                    "one caller uses most of red-box's time: all others go before it",
                    kind=share.kind.value,
                    name=share.name,
                    used_s=round(used_s, 1),
                    of_s=every_s,
                )
