"""What is read of an answer: all of it, or line by line, and never without an end."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import StreamReader

LONGEST = 64 << 20
"""Of what is held in memory at once: an array of 50,000 tasks is 8 MiB."""


class TooLong(Exception):
    """More than red-box ever says."""


async def whole(content: StreamReader) -> bytes:
    """All of it."""
    read = bytearray()
    async for piece in content.iter_any():
        read += piece
        _check(read)
    return bytes(read)


async def lines(content: StreamReader) -> AsyncIterator[bytes]:
    """Each document of a watch, however long; only LF ends one: U+2028 and others may stand in it."""
    begun = bytearray()
    async for piece in content.iter_any():
        first, *others = piece.split(b"\n")
        begun += first
        for other in others:
            if begun:
                yield bytes(begun)
            begun = bytearray(other)
        _check(begun)
    if begun:
        yield bytes(begun)


def _check(read: bytearray) -> None:
    if len(read) > LONGEST:
        raise TooLong(f"an answer of more than {LONGEST >> 20} MiB")
