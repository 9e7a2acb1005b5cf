"""A work queue of keys: no key is processed twice at once, and none waits for the pause of another.

A key that is added while it is processed is processed once more afterwards. A pause is a timer and not a
task: there may be ten thousand of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class WorkQueue(Generic[KeyT]):
    """First come, first served, by a number of workers, or by a task for each key."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[KeyT] = asyncio.Queue()
        self._queued: set[KeyT] = set()
        self._working: set[KeyT] = set()
        self._readded: set[KeyT] = set()
        self._timers: dict[KeyT, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._queued)

    @property
    def unfinished(self) -> int:
        """How many keys are queued or worked on."""
        return len(self._queued | self._working)

    def add(self, key: KeyT) -> None:
        """Process it as soon as possible."""
        if key in self._working:
            self._readded.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)

    def add_later(self, key: KeyT, seconds: float) -> None:
        """Process it after this time; the earliest of several times counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, seconds)
        before = self._timers.get(key)
        if before is not None and not before.cancelled() and before.when() <= due:
            return
        self.forget(key)
        self._timers[key] = loop.call_at(due, self._time_is_up, key)

    def forget(self, key: KeyT) -> None:
        """Cancel its timer."""
        if timer := self._timers.pop(key, None):
            timer.cancel()

    async def run(self, work: Callable[[KeyT], Awaitable[None]], *, workers: int | None) -> None:
        """Work until cancelled. What `work` raises ends it all: it handles what it expects.

        With `workers=None` each key has a task of its own: a key that hangs takes no worker from others.
        """
        try:
            async with asyncio.TaskGroup() as group:
                if workers is None:
                    while True:
                        group.create_task(self._work_on(await self._next(), work))
                for _ in range(workers):
                    group.create_task(self._work(work))
        finally:
            for key in list(self._timers):
                self.forget(key)

    async def _work(self, work: Callable[[KeyT], Awaitable[None]]) -> None:
        while True:
            await self._work_on(await self._next(), work)

    async def _next(self) -> KeyT:
        key = await self._queue.get()
        self._queued.discard(key)
        self._working.add(key)
        return key

    async def _work_on(self, key: KeyT, work: Callable[[KeyT], Awaitable[None]]) -> None:
        try:
            await work(key)
        finally:
            self._working.discard(key)
        if key in self._readded:
            self._readded.discard(key)
            self.add(key)

    def _time_is_up(self, key: KeyT) -> None:
        self._timers.pop(key, None)
        self.add(key)
