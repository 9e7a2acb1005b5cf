"""Connections, and who gives way when there are too many.

Who has not proved yet who they are is a stranger. Few strangers are let in, from one address (or user of this
host) and in all, and the one that came first gives way to the next: who means well asks at once. Those whose
caller is known are counted by caller, and the ones that are too many are refused. So nobody can take the
descriptors of everybody else, and what is held open costs an account here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

STRANGERS_PER_PEER = 512
STRANGERS = 2048
PER_CALLER = 4000


@dataclass(eq=False)
class ClientConnection:
    """One of them, and how to end it."""

    among: ConnectionLimiter
    peer: str
    end: Callable[[], object]
    caller: str | None = None

    def is_of(self, caller: str) -> bool:
        """Take it for this caller's from now on; False where this caller has too many."""
        return self.among.known(self, caller)

    def gone(self) -> None:
        """It is closed."""
        self.among.gone(self)


@dataclass
class ConnectionLimiter:
    """Those that are open."""

    strangers_per_peer: int = STRANGERS_PER_PEER
    strangers: int = STRANGERS
    per_caller: int = PER_CALLER
    _strangers: dict[ClientConnection, None] = field(default_factory=dict)  # in the order in which they came
    _by_peer: dict[str, dict[ClientConnection, None]] = field(default_factory=dict)
    _by_caller: Counter[str] = field(default_factory=Counter)

    def enter(self, peer: str, end: Callable[[], object]) -> ClientConnection:
        """One more stranger; the oldest one is ended where there are too many."""
        of_peer = self._by_peer.get(peer, {})
        if len(of_peer) >= self.strangers_per_peer:
            self._give_way(next(iter(of_peer)))
        elif len(self._strangers) >= self.strangers:
            self._give_way(next(iter(self._strangers)))
        connection = ClientConnection(self, peer, end)
        self._strangers[connection] = None
        self._by_peer.setdefault(peer, {})[connection] = None
        return connection

    def known(self, connection: ClientConnection, caller: str) -> bool:
        if connection.caller == caller:
            return True
        if self._by_caller[caller] >= self.per_caller:
            return False
        self.gone(connection)
        self._by_caller[caller] += 1
        connection.caller = caller
        return True

    def of_caller(self, caller: str) -> int:
        """How many this caller has."""
        return self._by_caller[caller]

    def gone(self, connection: ClientConnection) -> None:
        """Forget it, once or more often."""
        if connection.caller is not None:
            self._by_caller[connection.caller] -= 1
            if not self._by_caller[connection.caller]:
                del self._by_caller[connection.caller]
            connection.caller = None
        elif self._strangers.pop(connection, self) is None:
            of_peer = self._by_peer[connection.peer]
            del of_peer[connection]
            if not of_peer:
                del self._by_peer[connection.peer]

    def _give_way(self, connection: ClientConnection) -> None:
        self.gone(connection)
        connection.end()
