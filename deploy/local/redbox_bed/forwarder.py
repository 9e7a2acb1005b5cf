"""The process that carries connections from the machine's loopback into the bed.

    python -m redbox_bed.forwarder FD=ADDRESS:PORT ...

Each FD is a socket that listens already (see `forward`). A side that has sent all it has is closed in that
direction only, as protocols over TCP expect; a side that reads slowly holds up its own connection and fills
a bounded buffer. An unreachable target ends the connection; the next one tries again.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import cast

_BUFFERED_BYTES = 1 << 20
_CONNECT_SECONDS = 10


class End(asyncio.Protocol):
    """One end of a connection; what arrives here leaves at `other`."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: End | None = None
        self.done_sending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_BUFFERED_BYTES)

    def data_received(self, data: bytes) -> None:
        if self.other and self.other.transport:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Pass on that this side is done; the other direction stays open until it is done too."""
        self.done_sending = True
        if self.other and self.other.transport and not self.other.transport.is_closing():
            self.other.transport.write_eof()
        return not (self.other and self.other.done_sending)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self.other and self.other.transport:
            self.other.transport.close()

    def pause_writing(self) -> None:
        if self.other and self.other.transport:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other and self.other.transport:
            self.other.transport.resume_reading()


class Entrance(End):
    """The machine's end: connects to the target when somebody comes, and reads nothing before that."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__()
        self._target = (address, port)
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).pause_reading()
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        assert self.transport is not None  # noqa: S101
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, exit_end = await loop.create_connection(End, *self._target)
        except (OSError, TimeoutError):
            self.transport.abort()
            return
        self.other, exit_end.other = exit_end, self
        if self.transport.is_closing():
            self.connection_lost(None)
        else:
            self.transport.resume_reading()


def parse_route(argument: str) -> tuple[int, str, int]:
    """`3=10.77.0.40:6443`: a listening file descriptor, an address, a port."""
    descriptor, _, target = argument.partition("=")
    address, _, port = target.rpartition(":")
    return int(descriptor), address, int(port)


async def forward(routes: Sequence[tuple[socket.socket, str, int]]) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    servers = [
        await loop.create_server(partial(Entrance, address, port), sock=listening)
        for listening, address, port in routes
    ]
    print("forwarding", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main(arguments: Sequence[str]) -> None:
    routes = map(parse_route, arguments)
    asyncio.run(forward([(socket.socket(fileno=number), address, port) for number, address, port in routes]))


if __name__ == "__main__":
    main(sys.argv[1:])
