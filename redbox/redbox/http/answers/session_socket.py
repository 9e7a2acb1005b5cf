"""A WebSocket into a running job: what sessions and forwards share.

Each message has a bound, and a reader that takes nothing is disconnected. A client that sees no status must
not think that its command succeeded: so every way out writes one first.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from redbox.agents.errors import AgentError
from redbox.callers.peers import gone_in, is_stopping
from redbox.jobs.errors import Forbidden, JobNotFound, JobsError, RateLimited, RetryableError
from redbox.sessions.errors import SessionEnded, SessionsBusy
from redbox.sessions.relay_connection import StreamStatus
from redbox_api.sessions.parts import MAX_MESSAGE, SessionChannel, exit_status, failure_status
from redbox_shared.wire import STREAM_HEADER

log = structlog.get_logger(__name__)
INVALID = "Invalid"
STOPPING = (
    "ServiceUnavailable",
    "The red-box of this session stops, or is restarted: begin again once it is back.",
)
UNAUTHORIZED = (
    "NotAuthorized",
    "Red-box no longer accepts the token or the user of this session: begin again; a refusal says why.",
)


@dataclass
class SessionSocket:
    """One WebSocket."""

    socket: WebSocket
    identifier: str = field(default_factory=lambda: secrets.token_urlsafe(24), init=False)
    """In the path of the request that renews this session."""
    status_head: ClassVar[bytes] = bytes([SessionChannel.ERROR])
    """Before the status of the whole."""

    async def accept(self, protocol: str) -> None:
        await self.socket.accept(protocol, [(STREAM_HEADER.lower().encode(), self.identifier.encode())])

    async def next_message(self) -> bytes:
        """Return the next message after the first, which is never empty."""
        message = await self.receive()
        data = message.get("bytes")
        if not isinstance(data, bytes) or not data:
            raise SessionEnded(INVALID, "Every message but the first is binary, with a channel in front.")
        if len(data) > MAX_MESSAGE:
            raise SessionEnded(INVALID, f"A message is longer than {MAX_MESSAGE} bytes.")
        return data

    async def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = dict(await self.socket.receive())
        if message["type"] == "websocket.disconnect":
            self._check_stopping()
            raise WebSocketDisconnect(message.get("code", 1006))
        return message

    async def until_gone(self) -> None:
        """While the job reads no input, nothing is received, and so no end of the client's or red-box's."""
        gone = gone_in(self.socket.scope)
        if gone is None:
            await asyncio.Future()
            return
        await gone.wait()
        self._check_stopping()
        raise WebSocketDisconnect(1006)

    def _check_stopping(self) -> None:
        if is_stopping(self.socket.scope):
            raise SessionEnded(*STOPPING)

    async def finish(self, status: bytes, within_s: float) -> None:
        """Send the status, and close; a client that has gone, or reads nothing for so long, gets neither."""
        if self.socket.application_state is not WebSocketState.CONNECTED:
            return
        with suppress(WebSocketDisconnect, RuntimeError, TimeoutError, SessionEnded):
            async with asyncio.timeout(within_s):
                await self.socket.send_bytes(self.status_head + status)
                await self.socket.close()


@asynccontextmanager
async def task_group() -> AsyncIterator[Callable[[Awaitable[Any]], asyncio.Task[Any]]]:
    """Tasks that are cancelled, and awaited, at the end of the block; their errors are their readers'."""
    tasks: list[asyncio.Task[Any]] = []

    def start(work: Any) -> asyncio.Task[Any]:  # noqa: ANN401 (a coroutine of any kind)
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    try:
        yield start
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def document_of(status: StreamStatus) -> bytes:
    """What the client gets of a stream's status."""
    if status.code is None:
        return failure_status(status.reason or "Failed", status.message)
    return exit_status(status.code, status.message)


REASONS: tuple[tuple[type[Exception], str], ...] = (
    (Forbidden, "Forbidden"),
    (JobNotFound, "NotFound"),
    (SessionsBusy, "TooManyRequests"),
    (RateLimited, "TooManyRequests"),
    (RetryableError, "ServiceUnavailable"),
    (JobsError, INVALID),
    (AgentError, "RelayLost"),
)


def status_of(error: BaseException) -> bytes | None:
    """The status of a session that an error ended; None if the client has gone."""
    if isinstance(error, WebSocketDisconnect):
        return None
    if isinstance(error, SessionEnded):
        return failure_status(error.reason, error.message)
    for kind, reason in REASONS:
        if isinstance(error, kind):
            return failure_status(reason, str(error))
    return failure_status("InternalError", "Internal error of red-box; its log has the details.")


@contextmanager
def logged_defects(path: str) -> Iterator[list[BaseException]]:
    """Collect the error that ends a session; log it if it is a defect."""
    errors: list[BaseException] = []
    try:
        yield errors
    except (SessionEnded, WebSocketDisconnect, JobsError, SessionsBusy, AgentError) as error:
        errors.append(error)
    except Exception as error:
        log.exception("defect", path=path)
        errors.append(error)
