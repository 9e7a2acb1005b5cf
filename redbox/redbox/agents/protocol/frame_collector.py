"""Collects answers of many frames, up to the requested limit."""

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
MAX_STDERR = 1024 * 1024  # the rest is dropped


async def collect_output(stream: RequestStream, limit: int) -> CommandResult:
    outputs = {number: bytearray() for number in range(1, OUTPUTS + 1)}
    async for frame in stream:
        output = outputs.get(read_integer(frame.header, "fd"))
        data = parse_data(frame)
        if output is None or len(output) + len(data) > limit:
            raise FrameError("more output than the limit")
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
    chunks: list[bytes] = []
    length = 0
    async for frame in stream:
        chunks.append(parse_data(frame))
        length += len(chunks[-1])
        if length > limit:
            raise FrameError("more bytes than the limit")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def collect_matches(stream: RequestStream, limit: int) -> tuple[GlobMatch, ...]:
    matches: list[GlobMatch] = []
    async for frame in stream:
        if frame.kind is not FrameKind.EVENT or len(matches) >= limit:
            raise FrameError("more matches than the limit")
        matches.append(parse_match(frame.header))
    return tuple(matches)


async def single_chunk(data: bytes) -> AsyncIterator[bytes]:
    yield data
