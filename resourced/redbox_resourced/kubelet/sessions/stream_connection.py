"""What a session needs of its client's connection, whichever protocol that speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from aiohttp import web

from redbox_resourced.kubelet.spdy.frames import ResetStatus
from redbox_resourced.kubelet.turns import Turn


class ClientStream(Protocol):
    """One direction or both, of one name."""

    ended: asyncio.Event
    """Set when it was reset, by either side, or its connection has ended: the client wants nothing more."""

    @property
    def number(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def was_reset(self) -> bool: ...

    async def read(self) -> bytes:
        """All that has arrived; none at the end, or if input is unwanted."""
        ...

    async def write(self, data: bytes) -> None:
        """Waits while the client does not read; raises StreamEnded."""
        ...

    def finish(self, data: bytes = b"") -> None:
        """Send the last bytes, which are few, and end our direction, without waiting."""
        ...

    def reset(self, status: ResetStatus = ResetStatus.CANCEL) -> None:
        """End both directions."""
        ...

    def discard_input(self) -> None:
        """Whatever the client sends is not wanted; a reader that waits for it returns."""
        ...


class StreamConnection(Protocol):
    """The streams of one client."""

    ended: asyncio.Event

    @property
    def has_status(self) -> bool:
        """Whether its error stream carries a Status; else it has the message of a failure."""
        ...

    async def accept(self) -> ClientStream | None:
        """The next stream that the client has opened; None once there will be no more."""
        ...

    def refuse_streams(self) -> None:
        """Take no more of them."""
        ...


class Upgrade(Protocol):
    """A request whose connection may become a session: nothing was answered yet."""

    @property
    def response(self) -> web.StreamResponse: ...

    def serve(
        self, turn: Turn, interrupt: asyncio.Event | None = None
    ) -> AbstractAsyncContextManager[StreamConnection]:
        """Answer 101 and serve the client until the body ends; then it has time to read what was sent last.

        Until `interrupt` is set, or without it, that is a moment.
        """
        ...
