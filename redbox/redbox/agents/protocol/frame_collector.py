"""Answers of many frames, gathered: never more than was asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator

from redbox.agents.errors import FrameError
from redbox.agents.protocol.answers import (
    CommandResult,
    GlobMatch,
    parse_data,
    parse_match,
    read_code,
    read_flag,
    read_integer,
    read_seconds,
)
from redbox.agents.protocol.connection import RequestStream
from redbox.agents.protocol.frames import FrameKind

OUTPUTS = 2
MAX_STDERR = 1024 * 1024  # kept of it: nobody reads more


async def collect_output(stream: RequestStream, limit: int) -> CommandResult:
    """Gather a command's two outputs and how it ended."""
    outputs = {number: bytearray() for number in range(1, OUTPUTS + 1)}
    async for frame in stream:
        output = outputs.get(read_integer(frame.header, "fd"))
        data = parse_data(frame)
        if output is None or len(output) + len(data) > limit:
            raise FrameError("more output than was asked for")
        output += data if output is outputs[1] else data[: MAX_STDERR - len(output)]
    result = stream.result
    return CommandResult(
        code=read_code(result),
        stdout=bytes(outputs[1]),
        stderr=bytes(outputs[2]),
        took_s=read_seconds(result, "took_s"),
        timed_out=read_flag(result, "timed_out"),
        truncated=read_flag(result, "truncated"),
    )


async def collect_data(stream: RequestStream, limit: int) -> bytes:
    """Gather the bytes of one read."""
    pieces: list[bytes] = []
    length = 0
    async for frame in stream:
        pieces.append(parse_data(frame))
        length += len(pieces[-1])
        if length > limit:
            raise FrameError("more bytes than were asked for")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def collect_matches(stream: RequestStream, limit: int) -> tuple[GlobMatch, ...]:
    """Gather what a glob found."""
    found: list[GlobMatch] = []
    async for frame in stream:
        if frame.kind is not FrameKind.EVENT or len(found) >= limit:
            raise FrameError("more matches than were asked for")
        found.append(parse_match(frame.header))
    return tuple(found)


async def single_chunk(data: bytes) -> AsyncIterator[bytes]:
    yield data
