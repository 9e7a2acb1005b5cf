"""Many things to be done at the API server that do not need each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from redbox_kube.api.objects import ApiError

AT_ONCE = 16


@dataclass(frozen=True)
class Operation:
    """One of them, and what it is about."""

    about: str
    act: Callable[[], Awaitable[object]]


async def failures_of(errands: Iterable[Operation]) -> list[str]:
    """Do all, some at a time; which could not be done, each with why. None keeps another from being done."""
    left, failed = iter(errands), list[str]()

    async def work() -> None:
        for errand in left:
            try:
                await errand.act()
            except ApiError as error:
                failed.append(f"{errand.about}: {error}")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return failed
