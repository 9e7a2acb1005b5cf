"""Forwards of ports: for each connection a pair of streams, data and error, and one connection of red-box.

Any text on an error stream ends kubectl's whole forward, as it does with kubelets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

from redbox_api.errors import RedboxError
from redbox_api.sessions.client import SessionData
from redbox_kube.api.objects import ApiError
from redbox_resourced.kubelet.rejection import why
from redbox_resourced.kubelet.sessions.job_sessions import JobSessions, RunningConnection, RunningForward
from redbox_resourced.kubelet.sessions.stream_connection import ClientStream, StreamConnection
from redbox_resourced.kubelet.shares import TooManyOpen
from redbox_resourced.kubelet.spdy.errors import StreamEnded
from redbox_resourced.kubelet.spdy.frames import ResetStatus
from redbox_shared.wire import CONNECTION_RESET

PROTOCOLS = ("portforward.k8s.io",)
OPENING_S = 30.0
"""For the second stream of a pair: the kubelet's streamCreationTimeout."""
UNUSED_S = 3600.0
"""Without any connection: kubectl pings, so that the connection itself is never idle."""
MOST_PAIRS = 256
"""Of one forward: half of the streams of its connection."""
MAX_PORT = 0xFFFF


@dataclass
class StreamPair:
    """One connection; it is served once both streams are there."""

    port: int
    streams: dict[str, ClientStream] = field(default_factory=dict)
    is_complete: asyncio.Event = field(default_factory=asyncio.Event)


class PortForward:
    """All connections of one client."""

    def __init__(
        self,
        session: StreamConnection,
        jobs: JobSessions,
        taken: Callable[[], AbstractContextManager[None]],
        chosen_ports: Mapping[int, int],
    ) -> None:
        """`taken` counts a connection, or raises TooManyOpen; `chosen_ports` are by declared ones."""
        self._session = session
        self._jobs = jobs
        self._taken = taken
        self._chosen_ports = chosen_ports
        self._pairs: dict[str, StreamPair] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._forward: RunningForward | None = None
        self._beginning = asyncio.Lock()

    async def serve(self) -> None:
        """Until the client leaves, or has not used it for an hour."""
        async with asyncio.TaskGroup() as group:
            try:
                while (stream := await self._next_stream()) is not None:
                    self._add(stream, group)
            finally:
                for task in self._tasks:
                    task.cancel()
                if self._forward is not None:
                    await self._forward.close()

    async def _next_stream(self) -> ClientStream | None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(UNUSED_S):
                    return await self._session.accept()
            if not self._tasks:
                return None

    def _add(self, stream: ClientStream, group: asyncio.TaskGroup) -> None:
        kind, port = stream.headers.get("streamtype", ""), read_port(stream.headers.get("port", ""))
        request = stream.headers.get("requestid", "") or _request_of_old_client(kind, stream.number)
        pair = self._pairs.get(request)
        if kind not in {"data", "error"} or port is None or (pair and kind in pair.streams):
            stream.reset(ResetStatus.PROTOCOL_ERROR)
            return
        if pair is None:
            if len(self._tasks) >= MOST_PAIRS:  # streams that were reset count too, until their time is over
                stream.reset(ResetStatus.REFUSED_STREAM)
                return
            pair = self._pairs[request] = StreamPair(port)
            task = group.create_task(self._serve_pair(request, pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        pair.streams[kind] = stream
        if kind == "error":
            stream.discard_input()
        if len(pair.streams) == 2:  # noqa: PLR2004 (a pair)
            del self._pairs[request]
            pair.is_complete.set()

    async def _serve_pair(self, request: str, pair: StreamPair) -> None:
        problem: str | None = None  # it was interrupted
        try:
            problem = await self._problem_of(request, pair)
        finally:
            _end(pair, problem)

    async def _problem_of(self, request: str, pair: StreamPair) -> str:
        try:
            async with asyncio.timeout(OPENING_S):
                await pair.is_complete.wait()
        except TimeoutError:
            self._pairs.pop(request, None)
            return f"the second stream of request {request[:64]!r} did not come in time"
        return await self._carry(pair)

    async def _carry(self, pair: StreamPair) -> str:
        """Why the connection failed; empty where it just ended."""
        if any(stream.was_reset for stream in pair.streams.values()):
            return ""
        try:
            with self._taken():
                port = self._chosen_ports.get(pair.port, pair.port)
                job = await (await self._running_forward()).connect(port)
                try:
                    return await _copy(pair.streams["data"], job)
                finally:
                    await job.close()
        except (RedboxError, ApiError, TooManyOpen, TimeoutError) as error:
            return f"error forwarding port {pair.port}: {why(error)}"

    async def _running_forward(self) -> RunningForward:
        """Red-box's forward, of which there is one; a new one after its end."""
        async with self._beginning:
            if self._forward is None or self._forward.failure is not None:
                if self._forward is not None:
                    await self._forward.close()
                self._forward = await self._jobs.begin_forward()
            return self._forward


async def _copy(data: ClientStream, job: RunningConnection) -> str:
    async with asyncio.TaskGroup() as group:
        others = [group.create_task(work(data, job)) for work in (_copy_up, _close_when_ended)]
        try:
            return await _copy_down(data, job)
        finally:
            for task in others:
                task.cancel()


async def _copy_up(data: ClientStream, job: RunningConnection) -> None:
    while piece := await data.read():
        await job.send(piece)
    if not data.was_reset:
        await job.close_input()


async def _close_when_ended(data: ClientStream, job: RunningConnection) -> None:
    """The client has gone: what the job may still send has no reader, and the job may read nothing more."""
    await data.ended.wait()
    await job.close()


async def _copy_down(data: ClientStream, job: RunningConnection) -> str:
    try:
        while isinstance(received := await job.receive(), SessionData):
            if received.data:
                await data.write(received.data)
            else:
                data.finish()
    except StreamEnded:
        return ""
    if received.reason == CONNECTION_RESET:  # of this connection alone, which kubectl learns without a text
        data.reset()
    return "" if data.was_reset else received.why


def _end(pair: StreamPair, problem: str | None) -> None:
    """None: a connection that was interrupted must not look as if its server had ended it."""
    for kind, stream in sorted(pair.streams.items(), reverse=True):  # the error first
        if problem is not None:
            stream.finish(problem.encode() if kind == "error" else b"")
        if problem != "":
            stream.reset()
        stream.discard_input()


def read_port(text: str) -> int | None:
    """None for what is none."""
    port = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PORT)) else 0
    return port if 0 < port <= MAX_PORT else None


def _request_of_old_client(kind: str, number: int) -> str:
    """Clients of before 2015 send no request ids: kubelets take the id of the error stream instead."""
    return str(number if kind == "error" else number - 2)
