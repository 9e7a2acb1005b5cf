"""Accepted connections that wait for their turn. Where too many wait, the address with most loses one.

The newcomer does not give way: a few addresses that keep all places filled would lock out all others.
"""

from __future__ import annotations

from collections import deque
from socket import socket
from time import monotonic

WAITING_PER_PEER = 2048
"""Many companions may be behind one address, and start together."""
WAITING = 8192


class Arrivals:
    """By address. Each operation takes the same time, however many addresses there are."""

    def __init__(self) -> None:
        self._of_peer: dict[str, deque[tuple[socket, float]]] = {}
        self._with_more_than: list[dict[str, None]] = []
        """The addresses with more than so many connections, by number; the last entry is not empty."""
        self._count = 0

    def __contains__(self, peer: str) -> bool:
        """Whether the address has had connections here since its last turn, though all may be closed."""
        return peer in self._of_peer

    def __len__(self) -> int:
        return self._count

    def add(self, peer: str, accepted: socket) -> socket | None:
        """Return the connection that must be closed for it, if any, which may be itself."""
        waiting = self._of_peer.setdefault(peer, deque())
        if len(waiting) == len(self._with_more_than):
            self._with_more_than.append({})
        self._with_more_than[len(waiting)][peer] = None
        waiting.append((accepted, monotonic()))
        self._count += 1
        if len(waiting) > WAITING_PER_PEER:
            return self._remove_last(peer)
        if self._count > WAITING:
            return self._remove_last(next(iter(self._with_more_than[-1])))
        return None

    def take(self, peer: str) -> socket | None:
        """Its connection that waits longest; None if all were closed."""
        waiting = self._of_peer[peer]
        accepted = waiting.popleft()[0] if waiting else None
        if accepted is not None:
            self._removed(peer, len(waiting))
        if not waiting:
            del self._of_peer[peer]
        return accepted

    def waits_s(self, peer: str) -> float:
        """How long the one of the address waits that `take` returns."""
        waiting = self._of_peer[peer]
        return monotonic() - waiting[0][1] if waiting else 0.0

    def _remove_last(self, peer: str) -> socket:
        waiting = self._of_peer[peer]
        removed, _ = waiting.pop()
        self._removed(peer, len(waiting))
        return removed

    def _removed(self, peer: str, left: int) -> None:
        self._count -= 1
        del self._with_more_than[left][peer]
        if not self._with_more_than[-1]:
            self._with_more_than.pop()
