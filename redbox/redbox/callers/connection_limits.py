"""Limits on open connections, so that no client exhausts the descriptors of all others.

Connections that have not authenticated yet are limited per peer (an address, or a user of this host) and in
total; beyond a limit the oldest is closed, since a regular client sends its request at once. Authenticated
ones are counted by caller, and those beyond the limit are rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from redbox.core.turns import Share, ShareKind, Shares

UNAUTHENTICATED_PER_PEER = 512
UNAUTHENTICATED = 2048
PER_CALLER = 4000


@dataclass(eq=False)
class ClientConnection:
    """An open connection; `end` closes it. Its share is that of its peer until its caller is known."""

    limiter: ConnectionLimiter
    peer: str
    end: Callable[[], object]
    share: Share
    caller: str | None = None
    is_lost: bool = False

    def assign(self, caller: str) -> bool:
        """Count it as this caller's from now on; return False if the caller has too many.

        One that was lost while its caller was authenticated is not counted: nothing would release it.
        """
        return self.is_lost or self.limiter.assign(self, caller)

    def release(self) -> None:
        """It is lost: stop counting it."""
        self.is_lost = True
        self.limiter.release(self)


@dataclass
class ConnectionLimiter:
    """The open connections, oldest first."""

    unauthenticated_per_peer: int = UNAUTHENTICATED_PER_PEER
    unauthenticated: int = UNAUTHENTICATED
    per_caller: int = PER_CALLER
    shares: Shares = field(default_factory=Shares)
    dropped: int = 0
    """Connections that were closed because too many had no caller yet."""
    _unauthenticated: dict[ClientConnection, None] = field(default_factory=dict)
    _by_peer: dict[str, dict[ClientConnection, None]] = field(default_factory=dict)
    _by_caller: Counter[str] = field(default_factory=Counter)

    def is_full(self, peer: str) -> bool:
        """Whether the next connection of the peer closes its oldest."""
        return len(self._by_peer.get(peer, ())) >= self.unauthenticated_per_peer

    def open(self, peer: str, end: Callable[[], object]) -> ClientConnection:
        """Count a new connection, and close the oldest unauthenticated one if there are too many."""
        if self.is_full(peer):
            self._close(next(iter(self._by_peer[peer])))
        elif len(self._unauthenticated) >= self.unauthenticated:
            self._close(next(iter(self._unauthenticated)))
        connection = ClientConnection(self, peer, end, self.share_of(peer))
        self._unauthenticated[connection] = None
        self._by_peer.setdefault(peer, {})[connection] = None
        return connection

    def share_of(self, peer: str) -> Share:
        return self.shares.of(ShareKind.ADDRESS, peer)

    def assign(self, connection: ClientConnection, caller: str) -> bool:
        if connection.caller == caller:
            return True
        if self._by_caller[caller] >= self.per_caller:
            return False
        self.release(connection)
        self._by_caller[caller] += 1
        connection.caller = caller
        connection.share = self.shares.of(ShareKind.CALLER, caller)
        return True

    def release(self, connection: ClientConnection) -> None:
        """Stop counting a connection; idempotent."""
        if connection.caller is not None:
            self._by_caller[connection.caller] -= 1
            if not self._by_caller[connection.caller]:
                del self._by_caller[connection.caller]
            connection.caller = None
        elif self._unauthenticated.pop(connection, self) is None:
            of_peer = self._by_peer[connection.peer]
            del of_peer[connection]
            if not of_peer:
                del self._by_peer[connection.peer]

    def _close(self, connection: ClientConnection) -> None:
        self.dropped += 1
        self.release(connection)
        connection.end()
