"""A session over one WebSocket: messages with a byte of channel, and a status at the end, whatever ended it.

The first message and each later one have a bound, and a reader that takes nothing is disconnected. A client
that sees no status must not think that its command succeeded: so every way out writes one first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from redbox.agents.errors import AgentError
from redbox.callers.peers import gone_in
from redbox.http.answers.validation_messages import validation_message
from redbox.jobs.errors import Forbidden, JobNotFound, JobsError, RetryableError
from redbox.sessions.errors import SessionEnded, SessionsBusy
from redbox.sessions.relay_connection import StreamOutput, StreamStatus
from redbox.sessions.service import OpenSession
from redbox_api.sessions.parts import (
    MAX_MESSAGE,
    ExecRequest,
    ResizeMessage,
    SessionChannel,
    exit_status,
    failure_status,
)

log = structlog.get_logger(__name__)
FIRST_MESSAGE_S = 10.0
RESIZE_PAUSE_S = 0.1  # ten sizes a second; of more only the newest counts
LONGEST_REASON = 120  # a WebSocket's close has room for 123 bytes
INVALID = "Invalid"
RENEW_PAUSE_S = 10.0  # between tokens: each may have to be reviewed by an API server
UNAUTHORIZED = ("NotAuthorized", "Red-box no longer accepts the token or the user of this session.")


@dataclass
class SessionSocket:
    """One accepted WebSocket."""

    socket: WebSocket
    stall_s: float
    renew: Callable[[bytes], Awaitable[bool]]
    """Go on with a newer token; False if it is not one of the same caller."""
    _renewed_at: float = float("-inf")
    _size: ResizeMessage | None = None
    _resized: asyncio.Event = field(default_factory=asyncio.Event)

    async def first_message(self) -> ExecRequest:
        """Return what to run; SessionEnded for anything else, and for a client that is silent."""
        try:
            async with asyncio.timeout(FIRST_MESSAGE_S):
                message = await self._receive()
        except TimeoutError:
            raise SessionEnded(INVALID, f"No first message came within {FIRST_MESSAGE_S:.0f} s.") from None
        text = message.get("text")
        if not isinstance(text, str):
            raise SessionEnded(INVALID, "The first message must be text: JSON that names the command.")
        try:
            return ExecRequest.model_validate_json(text)
        except ValidationError as error:
            raise SessionEnded(INVALID, validation_message(error.errors())[:2000]) from None

    async def run(self, session: OpenSession, *, is_terminal: bool) -> bytes:
        """Carry messages until the session has ended; return its status."""
        endings: list[asyncio.Task[Any]] = []
        ended: asyncio.Future[Any] | None = None
        async with _task_group() as start:
            endings = [
                start(self._to_client(session)),
                start(self._from_client(session)),
                start(session.watch.until_job_ends()),
                start(session.watch.until_idle()),
                start(self._until_gone()),
            ]
            if is_terminal:
                start(self._pass_on_sizes(session))
            done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            ended = next((task for task in endings if task in done), None)
        assert ended is not None  # noqa: S101 # one of them is done
        status: StreamStatus = ended.result()
        if status.code is None:
            session.end = f"{status.reason}: {status.message}"
            return failure_status(status.reason or "Failed", status.message)
        session.end = f"exit {status.code}"
        return exit_status(status.code, status.message)

    async def _until_gone(self) -> None:
        """While the job reads no input, nothing is received, and so no end of the client either."""
        gone = gone_in(self.socket.scope)
        if gone is None:
            await asyncio.Future()
            return
        await gone.wait()
        raise WebSocketDisconnect(1006)

    async def _to_client(self, session: OpenSession) -> StreamStatus:
        while True:
            event = await session.receive()
            if isinstance(event, StreamStatus):
                return event
            await self.socket.send_bytes(_message_of(event))  # waits for `kubectl exec ... | less`

    async def _from_client(self, session: OpenSession) -> StreamStatus:
        while True:
            message = await self._receive()
            data = message.get("bytes")
            if not isinstance(data, bytes) or not data:
                raise SessionEnded(INVALID, "Every message but the first is binary, with a channel in front.")
            if len(data) > MAX_MESSAGE:
                raise SessionEnded(INVALID, f"A message is longer than {MAX_MESSAGE} bytes.")
            await self._take(session, data[0], data[1:])
            await asyncio.sleep(0)  # what is empty, or already there, is taken without a pause

    async def _take(self, session: OpenSession, channel: int, data: bytes) -> None:
        match channel:
            case SessionChannel.STDIN:
                await session.send(data)
            case SessionChannel.CLOSE if data == b"\0":
                await session.stream.close_input()
            case SessionChannel.CLOSE:
                pass  # of a channel that the client only reads
            case SessionChannel.RESIZE:
                try:
                    self._size = ResizeMessage.model_validate_json(data)
                except ValidationError:
                    raise SessionEnded(INVALID, 'A size is {"Width": columns, "Height": rows}.') from None
                self._resized.set()
            case SessionChannel.TOKEN:
                await self._go_on_with(data)
            case _:
                raise SessionEnded(INVALID, f"There is no channel {channel} to the job.")

    async def _go_on_with(self, token: bytes) -> None:
        now = time.monotonic()
        if now - self._renewed_at < RENEW_PAUSE_S:
            raise SessionEnded(INVALID, f"A newer token came within {RENEW_PAUSE_S:.0f} s of the last one.")
        self._renewed_at = now
        if not await self.renew(token):
            raise SessionEnded(*UNAUTHORIZED)

    async def _pass_on_sizes(self, session: OpenSession) -> None:
        while True:
            await self._resized.wait()
            self._resized.clear()
            if self._size is not None:
                await session.stream.resize(self._size.columns, self._size.rows)
            await asyncio.sleep(RESIZE_PAUSE_S)

    async def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = dict(await self.socket.receive())
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1006))
        return message

    async def finish(self, status: bytes) -> None:
        """Send the status, and close; a client that has gone, or does not read, gets neither."""
        if self.socket.application_state is not WebSocketState.CONNECTED:
            return
        with suppress(WebSocketDisconnect, RuntimeError, TimeoutError, SessionEnded):
            async with asyncio.timeout(self.stall_s):
                await self.socket.send_bytes(bytes([SessionChannel.ERROR]) + status)
                await self.socket.close()


def _message_of(output: StreamOutput) -> bytes:
    if not output.data:
        return bytes([SessionChannel.CLOSE, output.channel])
    return bytes([output.channel]) + output.data


@asynccontextmanager
async def _task_group() -> AsyncIterator[Callable[[Awaitable[Any]], asyncio.Task[Any]]]:
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


REASONS: tuple[tuple[type[Exception], str], ...] = (
    (Forbidden, "Forbidden"),
    (JobNotFound, "NotFound"),
    (SessionsBusy, "TooManyRequests"),
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
