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

from redbox.callers.peers import connection_in

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
    closed in the middle of the body, which no reader takes for its end. So ends also one that `has_end`, when
    its caller would not be let in any more (`renewals`); the others end cleanly then, which says: ask again.
    """

    def __init__(
        self,
        held: AsyncExitStack,
        pieces: AsyncIterator[bytes],
        *,
        media_type: str,
        headers: dict[str, str] | None = None,
        status: int = 200,
        has_end: bool = False,
    ) -> None:
        super().__init__(pieces, status, headers, media_type)
        held.push_async_callback(_close, pieces)
        self._held = held
        self._has_end = has_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._request = Request(scope)
        async with self._held:
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        stall_s = self._request.app.state.services.stall_s

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(stall_s):
                await send(message)

        try:
            await send_in_time(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            if await self._send_pieces(send_in_time) or not self._has_end:
                await send_in_time({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.warning("a reader was cut off", why=f"it took nothing for {stall_s} s")
            connection = connection_in(self._request.scope)
            if connection is not None:
                connection.end()  # a close would wait for the reader to take what is on its way
        except Exception as error:  # noqa: BLE001 (whatever it is, there is no answer left to say it in)
            log.warning("an answer broke off", error=repr(error))

    async def _send_pieces(self, send: Send) -> bool:
        """Whether all were sent, as opposed to those until its caller would not be let in any more."""
        state = self._request.state
        renewals = self._request.app.state.services.renewals
        async with renewals.lasting(self._request, state.caller, has_end=self._has_end) as ended:
            async for piece in self.body_iterator:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        return not ended()


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
