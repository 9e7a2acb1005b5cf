"""A peer that speaks SPDY/3.1 as API servers do, and a connection in memory."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping

from redbox_resourced.kubelet.spdy.frames import CONTROL_BIT, FIN, SIZE_MASK, data_header
from redbox_resourced.kubelet.spdy.headers import HeaderPacker, HeaderUnpacker

SYN_STREAM, SYN_REPLY, RST, SETTINGS, PING, GOAWAY, HEADERS, WINDOW = 1, 2, 3, 4, 6, 7, 8, 9


class MemoryWire:
    """What a session reads and writes; `is_blocked`: the peer does not read."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.sent = bytearray()
        self.is_blocked = False
        self.unblocked = asyncio.Event()
        self.has_gone = False

    async def read(self) -> bytes:
        return await self.incoming.get()

    def send(self, data: bytes) -> None:
        self.sent += data

    async def write(self, data: bytes) -> None:
        self.sent += data
        if self.is_blocked:
            await self.unblocked.wait()

    def backlog(self) -> int:
        return len(self.sent) if self.is_blocked else 0

    def is_gone(self) -> bool:
        return self.has_gone


class Peer:
    """The frames of one client, and what it has received of ours."""

    def __init__(self) -> None:
        self._packer = HeaderPacker()
        self._unpacker = HeaderUnpacker()
        self._held = b""
        self._next_stream = 1
        self.received: list[tuple[str, int, object]] = []
        """`data`, `fin`, `reply`, `reset`, `ping`, `goaway` and `window`, with a stream and a value."""

    def open(self, headers: Mapping[str, str], *, is_last: bool = False) -> tuple[int, bytes]:
        """The id of a new stream, and its SYN_STREAM."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        return stream, self.open_as(stream, headers, is_last=is_last)

    def open_as(self, stream: int, headers: Mapping[str, str], *, is_last: bool = False) -> bytes:
        body = struct.pack(">IIBB", stream, 0, 0, 0) + self._packer.pack(headers)
        return control(SYN_STREAM, body, FIN if is_last else 0)

    def feed(self, data: bytes) -> None:
        """Keep what our side has sent."""
        rest = self._held + data
        while len(rest) >= 8:
            first, second = struct.unpack_from(">II", rest)
            flags, size = second >> 24, second & SIZE_MASK
            if len(rest) < 8 + size:
                break
            body, rest = rest[8 : 8 + size], rest[8 + size :]
            if first & CONTROL_BIT:
                self._control(first & 0xFFFF, body)
            else:
                if body:
                    self.received.append(("data", first, body))
                if flags & FIN:
                    self.received.append(("fin", first, None))
        self._held = rest

    def _control(self, kind: int, body: bytes) -> None:
        if kind == SYN_REPLY:
            self.received.append(("reply", number(body), self._unpacker.unpack(body[4:])))
        elif kind == PING:
            self.received.append(("ping", number(body), None))
        else:
            name = {RST: "reset", GOAWAY: "goaway", WINDOW: "window"}[kind]
            self.received.append((name, number(body), number(body[4:])))

    def of(self, name: str) -> list[tuple[int, object]]:
        return [(stream, value) for kind, stream, value in self.received if kind == name]

    def data_of(self, stream: int) -> bytes:
        return b"".join(value for number, value in self.of("data") if number == stream)  # type: ignore[misc]


def control(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">HHI", 0x8003, kind, flags << 24 | len(body)) + body


def data(stream: int, content: bytes, *, is_last: bool = False) -> bytes:
    return data_header(stream, len(content), is_last=is_last) + content


def pair(kind: int, first: int, second: int) -> bytes:
    """RST_STREAM, GOAWAY and WINDOW_UPDATE are two numbers."""
    return control(kind, struct.pack(">II", first, second))


def settings(number: int, value: int) -> bytes:
    return control(SETTINGS, struct.pack(">III", 1, number, value))


def ping(number: int) -> bytes:
    return control(PING, struct.pack(">I", number))


def number(body: bytes) -> int:
    return int.from_bytes(body[:4])
