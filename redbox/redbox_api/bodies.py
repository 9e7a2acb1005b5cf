"""Reading a response's body: as a whole or line by line, with a bound on its size."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import StreamReader

LONGEST = 64 << 20
"""Bytes held in memory at once: an array of 50,000 tasks is 8 MiB."""


class TooLong(Exception):
    """The response is larger than red-box's responses are."""


async def whole(content: StreamReader) -> bytes:
    read = bytearray()
    async for piece in content.iter_any():
        read += piece
        _check(read)
    return bytes(read)


async def lines(content: StreamReader) -> AsyncIterator[bytes]:
    """The documents of a watch; only LF ends a line: U+2028 and others may be in it."""
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
