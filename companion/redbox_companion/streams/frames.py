"""RFC 6455, the client's side: frames from messages, messages from bytes. Pure, bounded, no extensions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
DATA = frozenset({TEXT, BINARY})
CONTROL = frozenset({CLOSE, PING, PONG})
FINAL, MASKED, RESERVED = 0x80, 0x80, 0x70
SHORT, TWO_BYTES, EIGHT_BYTES = 125, 126, 127
LARGEST_MESSAGE = 1 << 20


class ProtocolError(Exception):
    """The server's bytes are not a WebSocket's, or more than this client holds."""


def encode(kind: int, payload: bytes) -> bytes:
    """One whole message as one masked frame."""
    size, key = len(payload), os.urandom(4)
    if size <= SHORT:
        head = bytes((FINAL | kind, MASKED | size))
    elif size < 1 << 16:
        head = bytes((FINAL | kind, MASKED | TWO_BYTES)) + size.to_bytes(2, "big")
    else:
        head = bytes((FINAL | kind, MASKED | EIGHT_BYTES)) + size.to_bytes(8, "big")
    return head + key + masked(payload, key)


def masked(payload: bytes, key: bytes) -> bytes:
    """One exclusive or of two long numbers: some hundred times as fast as a loop over the bytes."""
    size = len(payload)
    repeated = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")


class MessageReader:
    """Messages from the bytes of a server, however they are cut."""

    def __init__(self, largest: int = LARGEST_MESSAGE) -> None:
        self._largest = largest
        self._bytes = bytearray()
        self._parts = bytearray()  # of a message in several frames
        self._kind: int | None = None  # of that message

    def feed(self, received: bytes) -> Iterator[tuple[int, bytes]]:
        """Kind and payload of each message that is complete now."""
        self._bytes += received
        while (frame := self._next_frame()) is not None:
            kind, final, payload = frame
            if kind in CONTROL:
                yield kind, payload
                continue
            self._join(kind, payload)
            if final and self._kind is not None:
                message, whole = self._kind, bytes(self._parts)
                self._kind = None
                self._parts.clear()
                yield message, whole

    def _join(self, kind: int, payload: bytes) -> None:
        if (kind == CONTINUATION) is (self._kind is None):
            raise ProtocolError("a frame is not the next of its message")
        if len(self._parts) + len(payload) > self._largest:
            raise ProtocolError(f"a message has more than {self._largest} bytes")
        self._kind = kind if self._kind is None else self._kind
        self._parts += payload

    def _next_frame(self) -> tuple[int, bool, bytes] | None:
        held = self._bytes
        if len(held) < 2:  # noqa: PLR2004 (the shortest head)
            return None
        kind, final, size, start = held[0] & 0x0F, bool(held[0] & FINAL), held[1] & 0x7F, 2
        if held[0] & RESERVED or held[1] & MASKED or kind not in DATA | CONTROL | {CONTINUATION}:
            raise ProtocolError("a frame has bits that no server may set")
        if kind in CONTROL and (not final or size > SHORT):
            raise ProtocolError("a control frame is too long, or cut")
        if size > SHORT:
            start += 2 if size == TWO_BYTES else 8
            if len(held) < start:
                return None
            size = int.from_bytes(held[2:start], "big")
        if size > self._largest:
            raise ProtocolError(f"a frame has more than {self._largest} bytes")
        if len(held) < start + size:
            return None
        payload = bytes(held[start : start + size])
        del held[: start + size]
        return kind, final, payload
