"""A command in a running job over one WebSocket: messages with a byte of channel, and a status at the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from redbox.http.answers.bounded_json import count_values, parsed
from redbox.http.answers.problems import HttpProblem
from redbox.http.answers.session_socket import INVALID, SessionSocket, document_of, task_group
from redbox.http.answers.validation_messages import validation_message
from redbox.sessions.errors import SessionEnded
from redbox.sessions.open_session import OpenSession
from redbox.sessions.relay_connection import StreamOutput, StreamStatus
from redbox_api.sessions.parts import ExecRequest, ResizeMessage, SessionChannel

FIRST_MESSAGE_S = 10.0
LONGEST_SIZE = 4096  # bytes
RESIZE_PAUSE_S = 0.1  # ten sizes a second; of more only the newest counts


@dataclass
class CommandSocket(SessionSocket):
    """Carries one command."""

    _size: ResizeMessage | None = field(default=None, init=False)
    _resized: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def first_message(self) -> ExecRequest:
        """Return what to run; SessionEnded for anything else, and for a client that is silent."""
        try:
            async with asyncio.timeout(FIRST_MESSAGE_S):
                message = await self.receive()
        except TimeoutError:
            raise SessionEnded(INVALID, f"No first message came within {FIRST_MESSAGE_S:.0f} s.") from None
        text = message.get("text")
        if not isinstance(text, str):
            raise SessionEnded(INVALID, "The first message must be text: JSON that names the command.")
        try:
            count_values(data := text.encode("utf-8", "surrogatepass"))
            parsed(data)  # for its bounds: pydantic's own parser, which refuses lone surrogates, has none
            return ExecRequest.model_validate_json(text)
        except HttpProblem as refusal:
            raise SessionEnded(INVALID, refusal.detail[:2000]) from None
        except ValidationError as error:
            raise SessionEnded(INVALID, validation_message(error.errors())[:2000]) from None

    async def run(self, session: OpenSession, *, is_terminal: bool) -> bytes:
        """Carry messages until the session has ended; return its status."""
        endings: list[asyncio.Task[Any]] = []
        ended: asyncio.Future[Any] | None = None
        async with task_group() as start:
            endings = [
                start(self._to_client(session)),
                start(self._from_client(session)),
                start(session.job.until_job_ends()),
                start(session.idle.until_idle()),
                start(self.until_gone()),
            ]
            if is_terminal:
                start(self._pass_on_sizes(session))
            done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            ended = next((task for task in endings if task in done), None)
        assert ended is not None  # noqa: S101 # one of them is done
        status: StreamStatus = ended.result()
        if status.code is None:
            session.end = f"{status.reason}: {status.message}"
        else:
            session.end = f"exit {status.code}"
        return document_of(status)

    async def _to_client(self, session: OpenSession) -> StreamStatus:
        while True:
            event = await session.receive()
            if isinstance(event, StreamStatus):
                return event
            await self.socket.send_bytes(_message_of(event))  # waits for `kubectl exec ... | less`

    async def _from_client(self, session: OpenSession) -> StreamStatus:
        while True:
            message = await self.next_message()
            await self._take(session, message[0], memoryview(message)[1:])
            await asyncio.sleep(0)  # what is empty, or already there, is taken without a pause

    async def _take(self, session: OpenSession, channel: int, data: memoryview) -> None:
        match channel:
            case SessionChannel.STDIN:
                await session.send(data)
            case SessionChannel.CLOSE if bytes(data) == b"\0":
                await session.stream.close_input()
            case SessionChannel.CLOSE:
                pass  # of a channel that the client only reads
            case SessionChannel.RESIZE:
                try:
                    self._size = ResizeMessage.model_validate_json(bytes(data[:LONGEST_SIZE]))
                except ValidationError:
                    raise SessionEnded(INVALID, 'A size is {"Width": columns, "Height": rows}.') from None
                self._resized.set()
            case _:
                raise SessionEnded(INVALID, f"There is no channel {channel} to the job.")

    async def _pass_on_sizes(self, session: OpenSession) -> None:
        while True:
            await self._resized.wait()
            self._resized.clear()
            if self._size is not None:
                await session.stream.resize(self._size.columns, self._size.rows)
            await asyncio.sleep(RESIZE_PAUSE_S)


def _message_of(output: StreamOutput) -> bytes:
    if not output.data:
        return bytes([SessionChannel.CLOSE, output.channel])
    return bytes([output.channel]) + output.data
