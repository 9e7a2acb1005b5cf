"""Many independent operations at the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from redbox_kube.api.objects import ApiError

AT_ONCE = 16
ItemT = TypeVar("ItemT")


async def failures_of(
    items: Iterable[ItemT], act: Callable[[ItemT], Awaitable[object]], about: Callable[[ItemT], str]
) -> list[str]:
    """Act on all, 16 at a time; returns the failures. A failure does not stop the others."""
    left, failed = iter(items), list[str]()

    async def work() -> None:
        for item in left:
            try:
                await act(item)
            except ApiError as error:
                failed.append(f"{about(item)}: {error}")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return failed
