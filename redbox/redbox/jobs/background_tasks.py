"""Work on the side: one task at most for each thing to do, none that outlives the server.

What is asked for while it is being done is not done twice. A chore that fails is logged and asked for again
by whoever looks next; it never takes the server with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Hashable
from typing import Any

from redbox.core.workload_manager import WorkloadManagerError
from redbox.jobs.errors import JobsError

log = logging.getLogger(__name__)


class BackgroundTasks:
    """Named tasks of a group; at most so many at a time ask the workload manager, and few for one user.

    A user may stop the own agent: what waits for it must leave places for everybody else.
    """

    def __init__(self, group: asyncio.TaskGroup, *, at_once: int = 32, of_one: int = 4) -> None:
        self._group = group
        self._slots = asyncio.Semaphore(at_once)
        self._slots_of: defaultdict[Hashable, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(of_one)
        )
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    def start(self, name: Hashable, work: Coroutine[Any, Any, None], *, of: Hashable = None) -> None:
        """Begin this unless a chore of this name is under way; `of` is the user whose agent does it."""
        if name in self._tasks:
            work.close()
            return
        task = self._group.create_task(self._do(name, work, of))
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._forget(name, work))

    def _forget(self, name: Hashable, work: Coroutine[Any, Any, None]) -> None:
        work.close()  # of a server that ends before the task's first step, it was never begun
        self._tasks.pop(name, None)

    async def _do(self, name: Hashable, work: Coroutine[Any, Any, None], of: Hashable) -> None:
        async with self._slots_of[of], self._slots:
            try:
                await work
            except (JobsError, WorkloadManagerError, TimeoutError) as fault:
                log.warning("%s: %s", name, fault)
            except (
                Exception
            ):  # a fault of ours in one job's errand must not end the server for all the others
                log.exception("%s failed", name)
