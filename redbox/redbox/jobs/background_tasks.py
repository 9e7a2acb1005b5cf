"""Background tasks: at most one of each name, none that outlives the server.

A task that is started again while it runs is not started twice. One that fails is logged, and started again
after the next poll; it never ends the server.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Hashable
from typing import Any

import structlog

from redbox.core.workload_manager import WorkloadManagerError
from redbox.jobs.errors import JobsError

log = structlog.get_logger(__name__)


class BackgroundTasks:
    """Named tasks of a group; a limited number run at a time, and few for one user.

    A user may stop the own agent: tasks that wait for it must leave places for the others.
    """

    def __init__(self, group: asyncio.TaskGroup, *, at_once: int = 32, of_one: int = 4) -> None:
        self._group = group
        self._slots = asyncio.Semaphore(at_once)
        self._slots_of: defaultdict[Hashable, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(of_one)
        )
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    def start(self, name: Hashable, work: Coroutine[Any, Any, None], *, of: Hashable = None) -> None:
        """Start this unless a task of this name runs; `of` is the user whose agent does the work."""
        if name in self._tasks:
            work.close()
            return
        task = self._group.create_task(self._do(name, work, of))
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._forget(name, work))

    def _forget(self, name: Hashable, work: Coroutine[Any, Any, None]) -> None:
        work.close()  # if the server ends before the task's first step, it was never awaited
        self._tasks.pop(name, None)

    async def _do(self, name: Hashable, work: Coroutine[Any, Any, None], of: Hashable) -> None:
        async with self._slots_of[of], self._slots:
            try:
                await work
            except (JobsError, WorkloadManagerError, TimeoutError) as fault:
                log.warning("%s: %s", name, fault)
            except Exception:  # a fault of ours over one job must not end the server for all the others
                log.exception("%s failed", name)
