"""Encoding and decoding of frames on the server's side, where the peer is not trusted.

Pure: bytes in, frames out. A decoder holds at most one incomplete frame and raises FrameError for malformed
ones; the order of frames is checked by `connection`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from redbox.agents.errors import FrameError
from redbox.agents.program import wire

MAX_BANNER = 64 * 1024
SHOWN = 200
"""Characters of a banner in a message."""
SMALL_HEADER = 32 * 1024  # a path of 4096 bytes, each escaped, and attributes
LARGEST_HEADER = {wire.DATA: SMALL_HEADER, wire.EVENT: SMALL_HEADER}


# The types of a frame, numbered as in `wire`.
FrameKind = IntEnum("FrameKind", "REQUEST DATA END CREDIT CANCEL EVENT DONE FAILED PING PONG")


@dataclass(frozen=True, slots=True)
class AgentFrame:
    """One frame; `cost` is its price in credit."""

    kind: FrameKind
    request: int
    header: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""
    cost: int = 0


def encode_frame(
    kind: FrameKind, request: int, header: Mapping[str, Any] | None = None, payload: bytes = b""
) -> bytes:
    """Return the frame's bytes; raises FrameError if it is too large for the agent."""
    encoded = json.dumps(header).encode() if header else b""
    if len(encoded) > wire.MAX_HEADER or len(payload) > wire.MAX_PAYLOAD:
        raise FrameError(f"a frame of {len(encoded)} + {len(payload)} bytes is too large")
    return b"".join((wire.PREFIX.pack(kind, request, len(encoded), len(payload)), encoded, payload))


class FrameDecoder:
    """Turns a peer's bytes, in chunks of any size, into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[AgentFrame]:
        """Yield the frames that these bytes complete."""
        self._buffer += data
        start = 0
        try:
            while (end := self._end_of_frame(start)) is not None:
                yield self._decode(start, end)
                start = end
        finally:
            del self._buffer[:start]

    def _end_of_frame(self, start: int) -> int | None:
        if len(self._buffer) - start < wire.PREFIX.size:
            return None
        kind, _, header_length, payload_length = wire.PREFIX.unpack_from(self._buffer, start)
        if header_length > LARGEST_HEADER.get(kind, wire.MAX_HEADER) or payload_length > wire.MAX_PAYLOAD:
            raise FrameError(f"a frame of {header_length} + {payload_length} bytes")
        end: int = start + wire.PREFIX.size + header_length + payload_length
        return end if len(self._buffer) >= end else None

    def _decode(self, start: int, end: int) -> AgentFrame:
        number, request, header_length, _ = wire.PREFIX.unpack_from(self._buffer, start)
        header_start = start + wire.PREFIX.size
        payload_start = header_start + header_length
        with memoryview(self._buffer) as view:
            header, payload = bytes(view[header_start:payload_start]), bytes(view[payload_start:end])
        try:
            kind = FrameKind(number)
        except ValueError:
            raise FrameError(f"a frame of unknown kind {number}") from None
        return AgentFrame(kind, request, decode_header(header), payload, end - start)


def decode_header(encoded: bytes) -> dict[str, Any]:
    if not encoded:
        return {}
    try:
        header = json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise FrameError("a header is not a JSON object")
    return header


class HelloScanner:
    """Finds the agent's first line after the output of sshd and of the user's shell."""

    def __init__(self, nonce: bytes) -> None:
        self._line = wire.hello_line(nonce)
        self._buffer = bytearray()

    @property
    def printed(self) -> str:
        """The last line before the hello, for the message where none comes."""
        lines = [line.strip() for line in self._buffer.decode(errors="replace").splitlines()]
        return next((line[:SHOWN] for line in reversed(lines) if line), "")

    def feed(self, data: bytes) -> bytes | None:
        """Return the bytes after the hello, or None until it is complete."""
        searched = max(0, len(self._buffer) - len(self._line))
        self._buffer += data
        position = self._buffer.find(self._line, searched)
        if position > MAX_BANNER or (position < 0 and len(self._buffer) > MAX_BANNER + len(self._line)):
            raise FrameError(f"no hello within {MAX_BANNER} bytes")
        return None if position < 0 else bytes(self._buffer[position + len(self._line) :])
