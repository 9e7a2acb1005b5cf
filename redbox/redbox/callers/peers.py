"""Who is at the other end of a connection, handed to the application in `scope["state"]`.

uvicorn copies its state into the scope of each request, so what a connection's protocol adds there is seen by
that connection's requests only, and nothing that a client sends can put it there.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from redbox.callers.connection_limits import ClientConnection
from redbox.callers.identities import Peer

STATE_KEY = "redbox.peer"
CONNECTION_KEY = "redbox.connection"
HEAD_TIMEOUT_S = 30.0  # from the connection to the end of a request's headers
MAX_HEAD = 65_536  # a request line, its query and a token
MAX_PIPELINED = 8
"""Requests that came while one before them was not answered: one read may bring thousands."""
_UCRED = struct.Struct("=iII")
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")


class TooManyPipelinedRequests(Exception):
    """More requests than anybody sends before the first is answered."""


class PeerAwareProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which also notes the peer's credentials when a connection is made.

    Who connects and asks nothing, or does not come to the end of it, is let go: uvicorn would keep them for
    ever, with all that they sent. How long a body may take while the application waits for it is the
    application's to say.
    """

    _patience: asyncio.TimerHandle | None = None
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
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_came()
        if self._connection is not None:
            self._connection.gone()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._patience is None:
            return
        self._head_size += len(data)
        if self._head_size > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The head of the request is larger than {MAX_HEAD} bytes.")

    def on_message_begin(self) -> None:
        self._await_request()
        if len(self.pipeline) >= MAX_PIPELINED:  # the parser stops at whatever is raised: 400, and the end
            raise TooManyPipelinedRequests
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._body_is_due:  # what comes behind a body is no header that anybody should take for one
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._request_came()
        self._body_is_due = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._body_is_due = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._body_is_due and self._patience is None:
            self._await_request()  # it is answered, and nobody but us waits for the rest of it

    def _await_request(self) -> None:
        self._request_came()
        self._head_size = 0
        self._patience = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _request_came(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def peer_of(connection: socket.socket) -> Peer | None:
    """The credentials that the peer had at its connect(); None where this is no Unix socket."""
    if connection.family != socket.AF_UNIX:
        return None
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return None if uid == _overflow_uid() else Peer(uid=uid, gid=gid, pid=pid)


def peer_in(scope: Mapping[str, Any]) -> Peer | None:
    """The peer that `PeerAwareProtocol` noted."""
    peer = scope.get("state", {}).get(STATE_KEY)
    return peer if isinstance(peer, Peer) else None


def connection_in(scope: Mapping[str, Any]) -> ClientConnection | None:
    """The connection of a request, where it is one of those that are counted."""
    connection = scope.get("state", {}).get(CONNECTION_KEY)
    return connection if isinstance(connection, ClientConnection) else None


def _overflow_uid() -> int:
    """What the kernel shows for a user of another user namespace who is nobody in ours: it proves nothing."""
    try:
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):
        return 65534
