"""TLS before slurmrestd, which has none in Debian: ends it, and passes the bytes on to a Unix socket.

It reads no HTTP: slurmrestd decides about tokens and requests, and the certificate about who may send any.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)
_CONNECT_S = 5
_READ_BYTES = 1 << 16


class TlsFront:
    """`handle` is for `TlsServer`.

    A connection is closed that sends nothing within `first_byte_s`, or on which nothing moves for `idle_s`.
    """

    def __init__(self, target: Path, *, idle_s: float = 120, first_byte_s: float = 10) -> None:
        self._target = target
        self._idle_s = idle_s
        self._first_byte_s = first_byte_s

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._first_byte_s):
            first = await reader.read(_READ_BYTES)
        if not first:
            return
        try:
            async with asyncio.timeout(_CONNECT_S):
                from_target, to_target = await asyncio.open_unix_connection(str(self._target))
        except OSError as error:  # TimeoutError too
            log.warning("%s does not accept connections: %s", self._target, error)
            return
        loop = asyncio.get_running_loop()
        try:
            to_target.write(first)
            async with asyncio.timeout(self._idle_s) as idle:

                def moved() -> None:
                    idle.reschedule(loop.time() + self._idle_s)

                request = asyncio.create_task(_pass_on(reader, to_target, moved))
                try:
                    await _pass_on(from_target, writer, moved)
                finally:
                    request.cancel()
                    await asyncio.gather(request, return_exceptions=True)
        finally:
            to_target.close()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, moved: Callable[[], None]
) -> None:
    """Until the sender has ended, and say so to the receiver where TLS does not forbid it."""
    while data := await reader.read(_READ_BYTES):
        moved()
        writer.write(data)
        await writer.drain()
        moved()
    if writer.can_write_eof():
        with contextlib.suppress(OSError):
            writer.write_eof()
