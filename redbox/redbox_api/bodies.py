"""Reading a response's body: as a whole or line by line, with a bound on its size."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import StreamReader

LONGEST = 64 << 20
"""Bytes held in memory at once: an array of 50,000 tasks is 8 MiB, an object of Kubernetes at most 1.5 MiB in
etcd and some times that in JSON, where `<` is six bytes."""


class TooLong(ValueError):
    """The response is larger than responses of this server are."""


async def whole(content: StreamReader, longest: int | None = None) -> bytes:
    read = bytearray()
    async for piece in content.iter_any():
        read += piece
        _check(read, longest or LONGEST)
    return bytes(read)


async def lines(
    content: StreamReader, longest: int | None = None, *, all_end: bool = False
) -> AsyncIterator[bytes]:
    """The documents of a watch, however long: aiohttp's own lines stop at 4 MiB.

    Only LF ends a line: U+2028 and others may be in it. With `all_end`, a last line without an end raises
    ConnectionError.
    """
    begun = bytearray()
    async for piece in content.iter_any():
        first, *others = piece.split(b"\n")
        begun += first
        for other in others:
            if begun:
                yield bytes(begun)
            begun = bytearray(other)
        _check(begun, longest or LONGEST)
    if begun and all_end:
        raise ConnectionError("it broke off in the middle of an event")
    if begun:
        yield bytes(begun)


def _check(read: bytearray, longest: int) -> None:
    if len(read) > longest:
        raise TooLong(f"an answer of more than {longest >> 20} MiB")
