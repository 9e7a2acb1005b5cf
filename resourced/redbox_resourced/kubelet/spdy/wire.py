"""What a SPDY session needs of the connection below it."""

from __future__ import annotations

from typing import Protocol


class Wire(Protocol):
    """The connection below."""

    async def read(self) -> bytes:
        """Some bytes; none at the end."""
        ...

    def send(self, data: bytes) -> None:
        """Without waiting."""
        ...

    async def write(self, data: bytes) -> None:
        """Waits while the peer does not read; raises ConnectionError."""
        ...

    def backlog(self) -> int:
        """Bytes that the peer has not taken."""
        ...

    def is_gone(self) -> bool:
        """Whether the peer has ended the connection, whatever of it was not read."""
        ...
