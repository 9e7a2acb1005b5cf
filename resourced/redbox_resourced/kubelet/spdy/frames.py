"""Frames of SPDY/3.1: bytes in, events out. No I/O.

The bytes of a DATA frame are passed on as they arrive, so a frame of 16 MiB costs no memory; a control frame
is kept until it is whole, and is bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from redbox_resourced.kubelet.spdy.errors import SpdyError
from redbox_resourced.kubelet.spdy.headers import HeaderUnpacker

MAX_CONTROL_FRAME = 16 * 1024
VERSION = 3
HEADER = struct.Struct(">II")
CONTROL_BIT = 0x8000_0000
ID_MASK = 0x7FFF_FFFF
SIZE_MASK = 0xFF_FFFF
FIN = 0x01
SETTING = struct.Struct(">II")
INITIAL_WINDOW_SETTING = 7


class FrameType(IntEnum):
    """Of control frames."""

    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    HEADERS = 8
    WINDOW_UPDATE = 9


class ResetStatus(IntEnum):
    """Why a stream is reset."""

    PROTOCOL_ERROR = 1
    REFUSED_STREAM = 3
    CANCEL = 5
    INTERNAL_ERROR = 6
    FLOW_CONTROL_ERROR = 7


class GoAwayStatus(IntEnum):
    """Why a connection ends."""

    OK = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2


@dataclass(frozen=True, slots=True)
class NewStream:
    """SYN_STREAM; `is_last`: the peer sends nothing on it."""

    stream: int
    headers: dict[str, str]
    is_last: bool


@dataclass(frozen=True, slots=True)
class StreamData:
    """A piece of a DATA frame, or the end of the peer's direction of the stream."""

    stream: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class StreamReset:
    """RST_STREAM."""

    stream: int


@dataclass(frozen=True, slots=True)
class Ping:
    """PING, which is to be sent back if the peer has begun it."""

    number: int


@dataclass(frozen=True, slots=True)
class PeerLeaves:
    """GOAWAY."""


@dataclass(frozen=True, slots=True)
class WindowGrown:
    """WINDOW_UPDATE; stream 0 is the connection."""

    stream: int
    by: int


@dataclass(frozen=True, slots=True)
class InitialWindow:
    """SETTINGS: the window of each stream, from its beginning."""

    size: int


Event = NewStream | StreamData | StreamReset | Ping | PeerLeaves | WindowGrown | InitialWindow


class FrameParser:
    """Of one direction of one connection; after a SpdyError it must not be fed again."""

    def __init__(self) -> None:
        self._headers: HeaderUnpacker | None = HeaderUnpacker()
        self._held = b""
        self._data: _OpenData | None = None

    @property
    def held_bytes(self) -> int:
        """Of a frame that is not whole."""
        return len(self._held)

    def drop_headers(self) -> None:
        """Unpack no more of them: with the window of zlib a session takes some 24 KiB more."""
        self._headers = None

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events of these bytes (consume all of them); raises SpdyError at the first flaw."""
        rest = memoryview(self._held + data if self._held else data)
        self._held = b""
        while rest:
            if self._data is None:
                frame, rest = self._next_frame(rest)
                if frame is None:
                    return
                yield from frame
            else:
                event, rest = self._next_piece(self._data, rest)
                yield event

    def _next_piece(self, open_data: _OpenData, rest: memoryview) -> tuple[StreamData, memoryview]:
        piece, rest = bytes(rest[: open_data.missing]), rest[open_data.missing :]
        open_data.missing -= len(piece)
        if open_data.missing == 0:
            self._data = None
        return StreamData(open_data.stream, piece, open_data.is_last and open_data.missing == 0), rest

    def _next_frame(self, rest: memoryview) -> tuple[list[Event] | None, memoryview]:
        """The events of a control frame, or of the head of a DATA frame; None before there is a whole one."""
        if len(rest) < HEADER.size:
            self._held = bytes(rest)
            return None, rest
        first, second = HEADER.unpack_from(rest)
        flags, size = second >> 24, second & SIZE_MASK
        if not first & CONTROL_BIT:
            return self._data_frame(first, flags, size), rest[HEADER.size :]
        if size > MAX_CONTROL_FRAME:
            raise SpdyError(f"a control frame is larger than {MAX_CONTROL_FRAME} bytes")
        if (first & ID_MASK) >> 16 != VERSION:
            raise SpdyError("a control frame is not of SPDY/3")
        end = HEADER.size + size
        if len(rest) < end:
            self._held = bytes(rest)
            return None, rest
        event = self._control_frame(first & 0xFFFF, flags, bytes(rest[HEADER.size : end]))
        return ([] if event is None else [event]), rest[end:]

    def _data_frame(self, stream: int, flags: int, size: int) -> list[Event]:
        if stream == 0:
            raise SpdyError("a DATA frame is of stream 0")
        is_last = bool(flags & FIN)
        if size:
            self._data = _OpenData(stream, size, is_last)
            return []
        return [StreamData(stream, b"", is_last=True)] if is_last else []

    def _control_frame(self, kind: int, flags: int, body: bytes) -> Event | None:  # noqa: PLR0911 (a table)
        match kind:
            case FrameType.SYN_STREAM:
                stream, _ = _numbers(body, exact=False)
                if len(body) < 10:  # noqa: PLR2004 (two ids, a priority and a slot)
                    raise SpdyError("a SYN_STREAM is too short")
                return NewStream(stream, self._unpack(body[10:]), bool(flags & FIN))
            case FrameType.SYN_REPLY | FrameType.HEADERS:
                return self._more_headers(flags, body)
            case FrameType.RST_STREAM:
                return StreamReset(_numbers(body)[0])
            case FrameType.PING:
                if len(body) != 4:  # noqa: PLR2004
                    raise SpdyError("a PING does not have 4 bytes")
                return Ping(int.from_bytes(body))
            case FrameType.GOAWAY:
                _numbers(body)
                return PeerLeaves()
            case FrameType.WINDOW_UPDATE:
                stream, by = _numbers(body)
                return WindowGrown(stream, by)
            case FrameType.SETTINGS:
                return _initial_window(body)
            case _:
                return None  # unknown control frames are ignored, as SPDY requires

    def _more_headers(self, flags: int, body: bytes) -> Event | None:
        """Headers that follow a stream's first ones are unpacked, and ignored."""
        if len(body) < 4:  # noqa: PLR2004
            raise SpdyError("a frame of headers is too short")
        self._unpack(body[4:])
        if not flags & FIN:
            return None
        return StreamData(int.from_bytes(body[:4]) & ID_MASK, b"", is_last=True)

    def _unpack(self, block: bytes) -> dict[str, str]:
        return self._headers.unpack(block) if self._headers else {}


@dataclass(slots=True)
class _OpenData:
    """A DATA frame of which some bytes have not arrived."""

    stream: int
    missing: int
    is_last: bool


def data_header(stream: int, size: int, *, is_last: bool = False) -> bytes:
    return HEADER.pack(stream, (FIN if is_last else 0) << 24 | size)


def control_frame(kind: FrameType, body: bytes) -> bytes:
    return HEADER.pack(CONTROL_BIT | VERSION << 16 | kind, len(body)) + body


def reply_frame(stream: int, headers: bytes) -> bytes:
    return control_frame(FrameType.SYN_REPLY, stream.to_bytes(4) + headers)


def reset_frame(stream: int, status: ResetStatus) -> bytes:
    return control_frame(FrameType.RST_STREAM, struct.pack(">II", stream, status))


def ping_frame(number: int) -> bytes:
    return control_frame(FrameType.PING, number.to_bytes(4))


def goaway_frame(last_stream: int, status: GoAwayStatus) -> bytes:
    return control_frame(FrameType.GOAWAY, struct.pack(">II", last_stream, status))


def window_frame(stream: int, by: int) -> bytes:
    return control_frame(FrameType.WINDOW_UPDATE, struct.pack(">II", stream, by))


def _numbers(body: bytes, *, exact: bool = True) -> tuple[int, int]:
    """Two numbers of 31 bits, which begin most frames."""
    if len(body) < HEADER.size or (exact and len(body) != HEADER.size):
        raise SpdyError("a control frame has a wrong length")
    first, second = HEADER.unpack_from(body)
    return first & ID_MASK, second & ID_MASK


def _initial_window(body: bytes) -> Event | None:
    count = int.from_bytes(body[:4])
    if len(body) != 4 + count * SETTING.size:
        raise SpdyError("a SETTINGS frame has a wrong length")
    for head, value in SETTING.iter_unpack(body[4:]):
        if head & SIZE_MASK == INITIAL_WINDOW_SETTING:
            return InitialWindow(value & ID_MASK)
    return None
