"""The connection below a session: how much of its output waits, whether its client is there, how it ends."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

from aiohttp import web

from redbox_shared.socket_options import KEEP_ALIVE

MOST_UNSENT = 64 * 1024
"""Of output, which waits then. TLS would hold as much as tells a client that reads none of our answers."""
LEAVE_S = 5.0
"""For the client to read our last frames and close the connection, where it is not to be waited for."""
UNREAD_S = 3600.0
"""For a client that has stopped reading, as `kubectl exec ... | less`. Closed earlier, its next PING would be
answered by a reset, upon which an API server drops what its client has not read, the status with it."""


GONE_S = 10.0
"""Between looks whether the client is still there, while nothing is read of it."""


class ClientTransport:
    """Of one request, before and after its 101."""

    def __init__(self, request: web.Request) -> None:
        if request.transport is None:
            raise ConnectionResetError("the client has gone")
        self.asyncio = request.transport
        self.asyncio.set_write_buffer_limits(MOST_UNSENT)
        self._socket = self.asyncio.get_extra_info("socket")
        for option in KEEP_ALIVE:
            self._socket.setsockopt(*option)

    def backlog(self) -> int:
        # A TLS transport of Python 3.11 that was closed twice, here and by aiohttp, raises AttributeError.
        return 0 if self.asyncio.is_closing() else self.asyncio.get_write_buffer_size()

    def is_gone(self) -> bool:
        """By the kernel: asyncio looks for no end of a connection that it does not read."""
        if self.asyncio.is_closing():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    def close(self, *, at_once: bool) -> None:
        """`at_once`: without sending what the client has not read."""
        if at_once:
            self.asyncio.abort()
            return
        if self.backlog():
            asyncio.get_running_loop().call_later(LEAVE_S, self.asyncio.abort)
        self.asyncio.close()


async def gets_room(
    has_room: asyncio.Event, is_full: Callable[[], bool], is_gone: Callable[[], bool]
) -> bool:
    """Wait for room; False if the client has gone, whose end is not read meanwhile."""
    while is_full():
        has_room.clear()
        try:
            async with asyncio.timeout(GONE_S):
                await has_room.wait()
        except TimeoutError:
            if is_gone():
                return False
    return True


async def first_of(*events: asyncio.Event) -> None:
    """Wait until one of them happens, or the client has read nothing for too long."""
    waiting = {asyncio.create_task(event.wait()) for event in events}
    try:
        await asyncio.wait(waiting, timeout=UNREAD_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
