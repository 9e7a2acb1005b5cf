"""Bytes that wait for their reader, in the pieces in which they came: joined once, and not copied before."""

from __future__ import annotations

PIECE_COST = 64
"""Of a piece beside its bytes: a stranger may send them one at a time."""


class HeldPieces:
    """What has come and was not taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.cost = 0
        """In memory; none: nothing is held."""

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.cost += len(piece) + PIECE_COST

    def take(self) -> bytes:
        """All of it."""
        taken = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self.cost = 0
        return taken
