"""Responses that are sent piece by piece and may take days.

A disconnect of the caller is noticed even before the first piece: otherwise the reader of a silent log would
leave behind a task that waits for ever.
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


class CallerDisconnected(Exception):
    """The caller closed the connection before there was a response."""


async def until_caller_disconnects(request: Request, work: Awaitable[T]) -> T:
    """Return the result of `work`; raise CallerDisconnected if the caller leaves before."""
    await request.body()  # the body is complete, so the next message can only be the disconnect
    task = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise CallerDisconnected
        return task.result()
    finally:
        for waiting in (task, disconnect):
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await waiting


class ManagedStream(StreamingResponse):
    """A streamed response that owns resources and releases them at its end, however it ends.

    The status is sent before the first piece, so a later failure can only abort the response: the connection
    is closed in the middle of the body, which no reader takes for its end. When reauthorization ends the
    stream, a response that `has_end` (a download) is aborted too; the others end cleanly, and their reader
    sends the next request.
    """

    def __init__(
        self,
        resources: AsyncExitStack,
        pieces: AsyncIterator[bytes],
        *,
        media_type: str,
        headers: dict[str, str] | None = None,
        status: int = 200,
        has_end: bool = False,
    ) -> None:
        super().__init__(pieces, status, headers, media_type)
        resources.push_async_callback(_close, pieces)
        self._resources = resources
        self._has_end = has_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._request = Request(scope)
        async with self._resources:
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
            log.warning("stalled reader disconnected", why=f"it took nothing for {stall_s} s")
            connection = connection_in(self._request.scope)
            if connection is not None:
                connection.end()  # a close would wait for the reader to take what is already sent
        except Exception as error:  # noqa: BLE001 (the status is sent: no error can be reported any more)
            log.warning("response aborted", error=repr(error))

    async def _send_pieces(self, send: Send) -> bool:
        """Return True if all pieces were sent, False if reauthorization ended the stream."""
        request = self._request
        reauthorization = request.app.state.services.reauthorization
        async with reauthorization.guard(request, request.state.caller, has_end=self._has_end) as is_ended:
            async for piece in self.body_iterator:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        return not is_ended()


async def ndjson(events: AsyncIterator[BaseModel]) -> AsyncIterator[bytes]:
    async with closing(events) as source:
        async for event in source:
            yield event.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"


async def with_first_piece(resources: AsyncExitStack, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Read the first piece before the status is sent, so that its failure still gets a status of its own."""
    resources.push_async_callback(_close, pieces)
    first = await anext(pieces, None)

    async def all_pieces() -> AsyncIterator[bytes]:
        if first is not None:
            yield first
            async for piece in pieces:
                yield piece

    return all_pieces()


@asynccontextmanager
async def closing(pieces: AsyncIterator[Piece]) -> AsyncIterator[AsyncIterator[Piece]]:
    """Close an iterator that may be a generator, as `contextlib.aclosing` does: its resources go at once."""
    try:
        yield pieces
    finally:
        await _close(pieces)


async def _close(pieces: AsyncIterator[Any]) -> None:
    if isinstance(pieces, AsyncGenerator):
        await pieces.aclose()
