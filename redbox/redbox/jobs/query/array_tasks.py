"""The tasks of arrays as callers see them: of a large one in pieces, between which others are served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from redbox.core.observations import ObservedStatus
from redbox.core.turns import Share, ShareKind, work_for
from redbox.core.workload_manager import JobStates
from redbox.jobs.record.api_view import are_listed, task_views
from redbox.jobs.record.record import JobRecord
from redbox_api.models import ArrayTask

PIECE = 1000
"""Tasks that are viewed without a pause: some 4 ms."""


class ArrayTasks:
    """Lists the tasks of one large array at a time: 40,000 take 30 MiB as objects, of each request.

    Of each caller one request waits for that, and its others behind it: so callers take turns, however many
    requests each of them sends. The listing has a share of its own: in its caller's turns it would keep the
    others waiting for all that this caller has asked for.
    """

    def __init__(self, states: JobStates) -> None:
        self._states = states
        self._one_at_a_time = asyncio.Lock()
        self._one_of_caller = WeakValueDictionary[str, asyncio.Lock]()
        self._share = Share(ShareKind.ARRAYS, "arrays")

    async def listed(
        self, caller: str, read: Callable[[], Awaitable[JobRecord]]
    ) -> tuple[JobRecord, list[ArrayTask] | None]:
        """Return a record with its tasks, or None where they are not listed."""
        record = await read()
        if len(record.status.tasks) <= PIECE:
            return record, await self._in_pieces(record.status)
        del record  # one that has ended was unpacked: those that wait keep none
        one_of_caller = self._one_of_caller.setdefault(caller, asyncio.Lock())
        async with one_of_caller:
            with work_for(self._share):
                listing = asyncio.create_task(self._list_large(read))
            return await listing

    async def _list_large(
        self, read: Callable[[], Awaitable[JobRecord]]
    ) -> tuple[JobRecord, list[ArrayTask] | None]:
        async with self._one_at_a_time:
            await asyncio.sleep(0)
            record = await read()
            return record, await self._in_pieces(record.status)

    async def _in_pieces(self, status: ObservedStatus) -> list[ArrayTask] | None:
        if not are_listed(status):
            return None
        views: list[ArrayTask] = []
        for start in range(0, len(status.tasks), PIECE):
            if start:
                await asyncio.sleep(0)
            views += task_views(status.tasks[start : start + PIECE], self._states)
        return views
