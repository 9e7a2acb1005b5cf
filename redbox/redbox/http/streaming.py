"""Answers that come piece by piece and may take days.

The caller's going away is noticed even before the first piece: a reader of a silent log must not stay behind
as a task that waits for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

T = TypeVar("T")


class CallerLeft(Exception):
    """Nobody is there to answer."""


async def unless_caller_leaves(request: Request, work: Awaitable[T]) -> T:
    """Wait for something, as long as somebody waits for us."""
    await request.body()  # all of it is in, so the next message can only be that the caller has left
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise CallerLeft
        return task.result()
    finally:
        for one in (task, leaving):
            one.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await one


class HeldStream(StreamingResponse):
    """A streamed answer that lets go of what it holds when it is over, however it ends."""

    def __init__(
        self,
        held: AsyncExitStack,
        pieces: AsyncIterator[bytes],
        *,
        media_type: str,
        headers: dict[str, str] | None = None,
        status: int = 200,
    ) -> None:
        super().__init__(pieces, status, headers, media_type)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)
