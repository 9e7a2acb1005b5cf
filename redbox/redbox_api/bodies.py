"""Reading a response's body: as a whole or line by line, within bounds on its size and its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf

from aiohttp import StreamReader

from redbox_api.limits.answer_limits import AnswerLimits, OutOfBounds
from redbox_api.limits.answer_memory import HeldAnswer
from redbox_api.limits.time_share import TimeShare

LIMITS = AnswerLimits()
UNMETERED = TimeShare(saved_s=inf)


async def whole(
    content: StreamReader,
    limits: AnswerLimits = LIMITS,
    share: TimeShare = UNMETERED,
    held: HeldAnswer | None = None,
) -> bytes:
    read = bytearray()
    async for piece in content.iter_any():
        read += piece
        limits.check_bytes(len(read))
        if held is not None:
            held.resize(len(read))
        await share.rest()
    return bytes(read)


async def lines(
    content: StreamReader,
    limits: AnswerLimits = LIMITS,
    share: TimeShare = UNMETERED,
    *,
    held: HeldAnswer | None = None,
    within: float = inf,
    all_end: bool = False,
) -> AsyncIterator[bytes]:
    """The documents of a watch, however long: aiohttp's own lines stop at 4 MiB.

    Only LF ends a line: U+2028 and others may be in it. Each has to come whole `within` seconds of its first
    byte. With `all_end`, a last line without an end raises ConnectionError.
    """
    begun, late_at, loop = bytearray(), inf, asyncio.get_running_loop()
    async for piece in content.iter_any():
        with share.charged():
            first, *others = piece.split(b"\n")
            begun += first
            ended = [line for line in (bytes(begun), *others[:-1]) if line] if others else []
            if others:
                begun, late_at = bytearray(others[-1]), inf
        for line in ended:
            yield line
        limits.check_bytes(len(begun))
        if held is not None:
            held.resize(len(begun))
        if loop.time() > late_at:
            raise OutOfBounds(f"an event that did not come whole within {within:g} s")
        rested = await share.rest()
        late_at = (loop.time() + within if late_at == inf else late_at + rested) if begun else inf
    if begun and all_end:
        raise ConnectionError("it broke off in the middle of an event")
    if begun:
        yield bytes(begun)
