"""Many independent operations at the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from redbox_kube.api.objects import ApiError

AT_ONCE = 16


@dataclass(frozen=True)
class Operation:
    """One operation, and its object in words."""

    about: str
    act: Callable[[], Awaitable[object]]


async def failures_of(operations: Iterable[Operation]) -> list[str]:
    """Run all, 16 at a time; returns the failures. A failure does not stop the others."""
    left, failed = iter(operations), list[str]()

    async def work() -> None:
        for operation in left:
            try:
                await operation.act()
            except ApiError as error:
                failed.append(f"{operation.about}: {error}")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return failed
