"""Who is at the other end of the Unix socket, handed to the application in `scope["state"]`.

    uvicorn.Config(app, uds="/run/redbox/redbox.sock", http=PeerAwareProtocol)

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

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from redbox.callers.identities import Peer

STATE_KEY = "redbox.peer"
REQUEST_S = 30.0  # from the connection to the end of a request's headers
_UCRED = struct.Struct("=iII")
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")


class PeerAwareProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which also notes the peer's credentials when a connection is made.

    Who connects and asks nothing is let go: uvicorn would keep it for ever, and descriptors are limited.
    """

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        self.app_state = {**self.app_state, STATE_KEY: peer_of(transport)}
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._await_request()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._request_came()
        super().on_headers_complete()

    def _await_request(self) -> None:
        self._request_came()
        self._patience = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _request_came(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def peer_of(transport: asyncio.BaseTransport) -> Peer | None:
    """The credentials that the peer had at its connect(); None where this is no Unix socket."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return None if uid == _overflow_uid() else Peer(uid=uid, gid=gid, pid=pid)


def peer_in(scope: Mapping[str, Any]) -> Peer | None:
    """The peer that `PeerAwareProtocol` noted."""
    peer = scope.get("state", {}).get(STATE_KEY)
    return peer if isinstance(peer, Peer) else None


def _overflow_uid() -> int:
    """What the kernel shows for a user of another user namespace who is nobody in ours: it proves nothing."""
    try:
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):
        return 65534
