"""What ends a session from outside: its client leaves, its pod is deleted, resourced stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


@dataclass
class SessionInterrupt:
    """Of one session; `reason` is a sentence for its client."""

    reason: str = "its connection ended"
    happened: asyncio.Event = field(default_factory=asyncio.Event)

    def interrupt(self, reason: str) -> None:
        self.reason = reason
        self.happened.set()


async def unless(work: Coroutine[Any, Any, ResultT], *ends: asyncio.Event) -> ResultT | None:
    """The work's result; None where one of the events comes first, which cancels the work."""
    working = asyncio.create_task(work)
    waiting = {asyncio.create_task(end.wait()) for end in ends}
    try:
        await asyncio.wait({working, *waiting}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, *waiting):
            task.cancel()
        await asyncio.gather(working, *waiting, return_exceptions=True)
