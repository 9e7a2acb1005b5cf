"""One connection: send these bytes, and read what comes until its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.fuzz.mutations import Pieces

QUIET_S = 0.1
"""After which no more of an answer is waited for: half a request is answered after minutes."""


@asynccontextmanager
async def connected(
    *, port: int = 0, path: str = ""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """At a port of this host, or at a Unix socket."""
    opening = asyncio.open_unix_connection(path) if path else asyncio.open_connection("127.0.0.1", port)
    reader, writer = await opening
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def send(writer: asyncio.StreamWriter, pieces: Pieces) -> None:
    """A server that has read enough may close before it has read all."""
    with suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()


async def rest(reader: asyncio.StreamReader, *, quiet_s: float = QUIET_S) -> bytes:
    """What comes until the end, or until nothing more comes."""
    answer = b""
    with suppress(ConnectionError, TimeoutError):
        while received := await asyncio.wait_for(reader.read(65536), quiet_s):
            answer += received
    return answer


async def exchange(pieces: Pieces, *, port: int = 0, path: str = "") -> bytes:
    async with connected(port=port, path=path) as (reader, writer):
        await send(writer, pieces)
        return await rest(reader)


def status_of(answer: bytes) -> int:
    """Of HTTP; 0 where the connection ended without an answer."""
    if not answer:
        return 0
    assert answer.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")), answer[:80]
    return int(answer.split(b" ", 2)[1])
