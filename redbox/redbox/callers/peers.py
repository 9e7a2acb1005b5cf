"""The peer of a connection, passed to the application in `scope["state"]`.

uvicorn copies its state into the scope of each request, so that an addition by a connection's protocol is
visible to that connection's requests only, and no client can forge it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame
from websockets.protocol import State

from redbox.callers.connection_limits import ClientConnection
from redbox.callers.identities import Peer
from redbox_shared.socket_options import KEEP_ALIVE

STATE_KEY = "redbox.peer"
CONNECTION_KEY = "redbox.connection"
GONE_KEY = "redbox.gone"
STOPPING_KEY = "redbox.stopping"
HEAD_TIMEOUT_S = 30.0  # from the connection to the end of a request's headers
MAX_HEAD = 65_536  # a request line, its query and a token
GONE_MS = 90_000
"""A client whose host answers nothing for so long is gone; TCP_USER_TIMEOUT also ends who does not read."""
UNREAD_S = 3600.0
"""For a client to read the last of a session, and its close: `kubectl exec ... | less`."""
TCP_INFO = struct.Struct("=2xB53xI")
"""How often the kernel has sent again what was not answered, and milliseconds since the last answer."""
MAX_PIPELINED = 8
"""Pipelined requests: one read may return thousands."""
_UCRED = struct.Struct("=iII")
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")


class TooManyPipelinedRequests(Exception):
    """The client sends too many requests before the first is answered."""


class PeerAwareProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the peer's credentials and a deadline for each request's head.

    uvicorn keeps a connection without a complete request for ever, with all its input. The application sets
    the deadline of a body.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _head_size = 0
    _body_is_due = False

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connection: ClientConnection | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._connection = connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        peer = peer_of(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, STATE_KEY: peer, CONNECTION_KEY: self._connection}
        super().connection_made(transport)
        if self._connection is not None:
            self._connection.end = transport.abort
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        if self._connection is not None:
            self._connection.release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_timer is None:
            return
        self._head_size += len(data)
        if self._head_size > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The head of the request is larger than {MAX_HEAD} bytes.")

    def on_message_begin(self) -> None:
        self._start_head_timer()
        if len(self.pipeline) >= MAX_PIPELINED:  # any exception ends the parser: 400 and close
            raise TooManyPipelinedRequests
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._body_is_due:  # trailers are not headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        self._body_is_due = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._body_is_due = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._body_is_due and self._head_timer is None:
            self._start_head_timer()  # the answer is sent, so that the application no longer limits the body

    def _start_head_timer(self) -> None:
        self._stop_head_timer()
        self._head_size = 0
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


MOST_UNREAD = 2 << 20
"""Bytes that a WebSocket's client has not read: more than a window of sessions."""
MOST_FRAMES = 1024
"""In one message, whose frames may be empty."""
PIECE = 16 * 1024
TURN_S = 0.005
"""What is read at once may be 256 KiB of messages of seven bytes: it is parsed in pieces, and others have
their turn after so long."""


class PeerAwareSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, which keeps its connection counted, and notices a client that is gone.

    uvicorn's own deadline for answers to pings cannot be used: while a command does not read its input,
    nothing is read of its client, and so no such answer either.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._gone = asyncio.Event()
        self._stopping = asyncio.Event()
        self._unparsed = memoryview(b"")
        self.app_state = {**self.app_state, GONE_KEY: self._gone, STOPPING_KEY: self._stopping}
        super().connection_made(transport)
        self.close_timeout = UNREAD_S
        connection = self.app_state.get(CONNECTION_KEY)
        if isinstance(connection, ClientConnection):
            connection.end = self.transport.abort
        opened = transport.get_extra_info("socket")
        if opened is not None and opened.family != socket.AF_UNIX:
            for option in KEEP_ALIVE:
                opened.setsockopt(*option)

    def data_received(self, data: bytes) -> None:
        is_parsing = bool(self._unparsed)
        self._unparsed = memoryview(bytes(self._unparsed) + data if is_parsing else data)
        if not is_parsing:
            self._parse()

    def _parse(self) -> None:
        """Parse for one turn; nothing more is read before the last piece.

        After the end all is read, and dropped: a client that still writes has to reach its own end.
        """
        until = self.loop.time() + TURN_S
        while self._unparsed and not self.transport.is_closing():
            piece, self._unparsed = bytes(self._unparsed[:PIECE]), self._unparsed[PIECE:]
            super().data_received(piece)
            if self.loop.time() > until:
                break
        if self.transport.is_closing():
            self._unparsed = memoryview(b"")
        elif self._unparsed:
            self._pause_reading()
            self.loop.call_soon(self._parse)
        elif self.read_paused and (self.close_sent or self.queue.empty()):
            self.read_paused = False
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        self.read_paused = True
        self.transport.pause_reading()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next message; uvicorn reads on as soon as its queue is empty, whatever is not parsed."""
        message = await super().receive()
        if self._unparsed:
            self._pause_reading()
        return message

    async def send(self, message: ASGISendEvent) -> None:
        """After a refusal nothing more is due; uvicorn would log it as an application without an answer."""
        await super().send(message)
        is_refusal = message["type"] == "websocket.http.response.body"
        self.handshake_complete |= is_refusal and not message.get("more_body", False)

    def send_keepalive_ping(self) -> None:
        if not self.transport.is_closing() and self._host_is_gone():
            self.transport.abort()
        else:
            super().send_keepalive_ping()

    def _host_is_gone(self) -> bool:
        """By the kernel, whose bytes a host answers also while its program does not read."""
        opened = self.transport.get_extra_info("socket")
        if opened is None or opened.family == socket.AF_UNIX:
            return False
        info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)
        repeated, silent_ms = TCP_INFO.unpack(info)
        return bool(repeated) and silent_ms >= GONE_MS

    def handle_ping(self) -> None:
        """Answers are written without a pause of reading: a client that reads none of them is cut off."""
        super().handle_ping()
        if self.transport.get_write_buffer_size() > MOST_UNREAD:
            self.transport.abort()

    def handle_cont(self, event: Frame) -> None:
        """The bytes of a message are bounded; so is the number of its frames."""
        if len(self.frames) >= MOST_FRAMES:
            self.transport.abort()
            return
        super().handle_cont(event)

    def shutdown(self) -> None:
        """The server stops: the application sends why, and closes. Who does not read gets no reason."""
        if self.conn.state is not State.OPEN or not self.writable.is_set():
            super().shutdown()
            return
        self.stop_keepalive()
        self._stopping.set()
        self._gone.set()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.SERVICE_RESTART})

    def connection_lost(self, exc: Exception | None) -> None:
        connection = self.app_state.get(CONNECTION_KEY)
        if isinstance(connection, ClientConnection):
            connection.release()
        self._gone.set()
        self._unparsed = memoryview(b"")
        super().connection_lost(exc)


def peer_of(connection: socket.socket) -> Peer | None:
    """The peer's credentials at its connect(); None if this is not a Unix socket."""
    if connection.family != socket.AF_UNIX:
        return None
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return None if uid == _overflow_uid() else Peer(uid=uid, gid=gid, pid=pid)


def peer_in(scope: Mapping[str, Any]) -> Peer | None:
    """The peer that `PeerAwareProtocol` noted."""
    peer = scope.get("state", {}).get(STATE_KEY)
    return peer if isinstance(peer, Peer) else None


def connection_in(scope: Mapping[str, Any]) -> ClientConnection | None:
    connection = scope.get("state", {}).get(CONNECTION_KEY)
    return connection if isinstance(connection, ClientConnection) else None


def gone_in(scope: Mapping[str, Any]) -> asyncio.Event | None:
    """Set when the WebSocket's connection is lost, or the server stops, whether or not one receives."""
    return _event_in(scope, GONE_KEY)


def is_stopping(scope: Mapping[str, Any]) -> bool:
    """Whether the server stops: its application has a few seconds to end the WebSocket."""
    stopping = _event_in(scope, STOPPING_KEY)
    return stopping is not None and stopping.is_set()


def _event_in(scope: Mapping[str, Any], key: str) -> asyncio.Event | None:
    event = scope.get("state", {}).get(key)
    return event if isinstance(event, asyncio.Event) else None


def _overflow_uid() -> int:
    """The uid that the kernel shows for unmapped users of other user namespaces: it proves nothing."""
    try:
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):
        return 65534
