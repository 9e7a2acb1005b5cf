"""Answers that come piece by piece and may take days.

The caller's going away is noticed even before the first piece: a reader of a silent log must not stay behind
as a task that waits for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import structlog
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

log = structlog.get_logger(__name__)
NDJSON = "application/x-ndjson"
T = TypeVar("T")
Piece = TypeVar("Piece")


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
    """A streamed answer that lets go of what it holds when it is over, however it ends.

    Its status is sent before its first piece, so what fails later can only break it off: the connection is
    closed in the middle of the body, which no reader takes for its end.
    """

    def __init__(
        self,
        held: AsyncExitStack,
        pieces: AsyncIterator[bytes],
        *,
        media_type: str,
        headers: dict[str, str] | None = None,
        status: int = 200,
        stall_s: float | None = None,
    ) -> None:
        super().__init__(pieces, status, headers, media_type)
        held.push_async_callback(_close, pieces)
        self._held = held
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._stall_s):
                await send(message)

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            log.warning("a reader was cut off", why=f"it took nothing for {self._stall_s} s")
        except Exception as error:  # noqa: BLE001 (whatever it is, there is no answer left to say it in)
            log.warning("an answer broke off", error=repr(error))


async def ndjson(events: AsyncIterator[BaseModel]) -> AsyncIterator[bytes]:
    """Events as they are sent: one JSON document a line."""
    async with closing(events) as changes:
        async for event in changes:
            yield event.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"


async def begun(held: AsyncExitStack, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Have the first piece at hand, so that what refuses it is answered with a status of its own."""
    held.push_async_callback(_close, pieces)
    first = await anext(pieces, None)
    return _from(first, pieces)


async def _from(first: bytes | None, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first is not None:
        yield first
        async for piece in rest:
            yield piece


@asynccontextmanager
async def closing(pieces: AsyncIterator[Piece]) -> AsyncIterator[AsyncIterator[Piece]]:
    """`contextlib.aclosing` for iterators that may be generators: what they hold is let go now, not later."""
    try:
        yield pieces
    finally:
        await _close(pieces)


async def _close(pieces: AsyncIterator[Any]) -> None:
    if isinstance(pieces, AsyncGenerator):
        await pieces.aclose()
