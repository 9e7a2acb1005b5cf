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
_UCRED = struct.Struct("=iII")
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")


class PeerAwareProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which also notes the peer's credentials when a connection is made."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        self.app_state = {**self.app_state, STATE_KEY: peer_of(transport)}
        super().connection_made(transport)


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
