"""One command in a job: bytes both ways, window sizes, and the status at the end, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from redbox_api.errors import RedboxError
from redbox_api.sessions.client import CONNECTION_LOST, SessionData
from redbox_api.sessions.parts import ExecRequest, SessionStatus, TerminalSize
from redbox_resourced.kubelet.sessions.client_streams import ClientStreams, StreamOptions, StreamsMissing
from redbox_resourced.kubelet.sessions.ending import SessionInterrupt, unless
from redbox_resourced.kubelet.sessions.job_sessions import RunningSession
from redbox_resourced.kubelet.sessions.statuses import internal_error
from redbox_resourced.kubelet.sessions.stream_connection import StreamConnection

FIRST_SIZE_S = 1.0
"""For the size that kubectl sends first: a program that begins without it would draw twice."""
RESIZE_PAUSE_S = 0.05
"""Between two sizes: of those that come meanwhile, the newest counts."""
Body = Callable[[ClientStreams], Awaitable[SessionStatus]]


async def serve_streams(
    session: StreamConnection, options: StreamOptions, interrupt: SessionInterrupt, body: Body
) -> SessionStatus:
    """Run the body with the client's streams; the client gets its status, or why it has no exit code."""
    streams = ClientStreams(session)
    status = internal_error(f"the session was interrupted: {interrupt.reason}")

    async def serve() -> SessionStatus:
        await streams.gather(options.names)
        return await body(streams)

    try:
        ended = await unless(serve(), session.ended, interrupt.happened)
        status = ended or internal_error(f"the session was interrupted: {interrupt.reason}")
    except StreamsMissing as missing:
        status = internal_error(str(missing))
    except RedboxError as error:
        status = internal_error(f"the session broke: {error}")
    finally:
        streams.finish(status)
    return status


@dataclass(frozen=True)
class RemoteCommand:
    """A command, and the job's session in which it runs."""

    request: ExecRequest
    job: RunningSession

    async def run(self, streams: ClientStreams) -> SessionStatus:
        """Start it with the client's window size, and copy until its end."""
        size = await _first_size(streams) if self.request.tty else None
        await self.job.start(self.request.model_copy(update={"size": size}))
        async with asyncio.TaskGroup() as group:
            inputs = [group.create_task(self._copy_input(streams))]
            if self.request.tty:
                inputs.append(group.create_task(self._copy_sizes(streams)))
            try:
                return await self._copy_output(streams)
            finally:
                for task in inputs:
                    task.cancel()

    async def _copy_input(self, streams: ClientStreams) -> None:
        if not self.request.stdin:
            return
        while piece := await streams.read_input():
            await self.job.send(piece)
        await self.job.close_input()

    async def _copy_sizes(self, streams: ClientStreams) -> None:
        while size := await streams.next_size():
            await self.job.resize(size)
            await asyncio.sleep(RESIZE_PAUSE_S)

    async def _copy_output(self, streams: ClientStreams) -> SessionStatus:
        while isinstance(received := await self.job.receive(), SessionData):
            await streams.write_output(received)
        if received.reason == CONNECTION_LOST:
            return internal_error(f"the session broke: {received.message}")
        return received


async def _first_size(streams: ClientStreams) -> TerminalSize | None:
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_SIZE_S):
            return await streams.next_size()
    return None
