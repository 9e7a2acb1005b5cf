"""Answers of many frames, gathered: never more than was asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator

from redbox.agents.errors import FrameError
from redbox.agents.protocol.answers import (
    Completed,
    Match,
    read_code,
    read_data,
    read_flag,
    read_integer,
    read_match,
    read_seconds,
)
from redbox.agents.protocol.connection import Stream
from redbox.agents.protocol.frames import Kind

OUTPUTS = 2
MAX_STDERR = 1024 * 1024  # kept of it: nobody reads more


async def collect_output(stream: Stream, limit: int) -> Completed:
    """Gather a command's two outputs and how it ended."""
    outputs = {number: bytearray() for number in range(1, OUTPUTS + 1)}
    async for frame in stream:
        output = outputs.get(read_integer(frame.header, "fd"))
        data = read_data(frame)
        if output is None or len(output) + len(data) > limit:
            raise FrameError("more output than was asked for")
        output += data if output is outputs[1] else data[: MAX_STDERR - len(output)]
    result = stream.result
    return Completed(
        code=read_code(result),
        stdout=bytes(outputs[1]),
        stderr=bytes(outputs[2]),
        took_s=read_seconds(result, "took_s"),
        timed_out=read_flag(result, "timed_out"),
        truncated=read_flag(result, "truncated"),
    )


async def collect_data(stream: Stream, limit: int) -> bytes:
    """Gather the bytes of one read."""
    pieces: list[bytes] = []
    length = 0
    async for frame in stream:
        pieces.append(read_data(frame))
        length += len(pieces[-1])
        if length > limit:
            raise FrameError("more bytes than were asked for")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def collect_matches(stream: Stream, limit: int) -> tuple[Match, ...]:
    """Gather what a glob found."""
    found: list[Match] = []
    async for frame in stream:
        if frame.kind is not Kind.EVENT or len(found) >= limit:
            raise FrameError("more matches than were asked for")
        found.append(read_match(frame.header))
    return tuple(found)


async def just(data: bytes) -> AsyncIterator[bytes]:
    yield data
