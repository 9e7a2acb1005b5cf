"""Header blocks of SPDY/3.1: lists of names and values, compressed by one zlib stream for each direction.

The peer's compressor is never reset, so each block is unpacked, whether or not its stream is wanted.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

from redbox_resourced.kubelet.spdy.dictionary import DICTIONARY
from redbox_resourced.kubelet.spdy.errors import SpdyError

MAX_BLOCK = 4096
"""Bytes of an unpacked block; those of API servers are 30 to 100."""
MAX_HEADERS = 32
KEPT = frozenset({"streamtype", "port", "requestid"})
LONGEST_KEPT = 128
"""Of a header that a stream keeps; it drops the others."""
LENGTH = struct.Struct(">I")


class HeaderUnpacker:
    """Of one connection."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(zdict=DICTIONARY)

    def unpack(self, block: bytes) -> dict[str, str]:
        """Raises SpdyError; names are in lower case."""
        try:
            raw = self._zlib.decompress(block, MAX_BLOCK + 1)
        except zlib.error as error:
            raise SpdyError(f"a header block cannot be unpacked: {error}") from error
        if len(raw) > MAX_BLOCK:
            raise SpdyError(f"a header block is larger than {MAX_BLOCK} bytes")
        return _read(raw)


class HeaderPacker:
    """Of one connection."""

    def __init__(self) -> None:
        # The smallest window and table: our headers are short, and the usual ones take 256 KiB a session.
        self._zlib = zlib.compressobj(wbits=9, memLevel=1, zdict=DICTIONARY)

    def pack(self, headers: Mapping[str, str]) -> bytes:
        texts = [text.encode() for header in headers.items() for text in header]
        raw = LENGTH.pack(len(headers)) + b"".join(LENGTH.pack(len(text)) + text for text in texts)
        return self._zlib.compress(raw) + self._zlib.flush(zlib.Z_SYNC_FLUSH)


def _read(raw: bytes) -> dict[str, str]:
    count, position = _number(raw, 0)
    if count > MAX_HEADERS:
        raise SpdyError(f"a header block has more than {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for _ in range(count):
        name, position = _text(raw, position)
        value, position = _text(raw, position)
        if not name or name.lower() in headers:
            raise SpdyError("a header block has a name twice, or an empty one")
        if name.lower() in KEPT and len(value) > LONGEST_KEPT:
            raise SpdyError(f"the header {name.lower()} has more than {LONGEST_KEPT} bytes")
        headers[name.lower()] = value
    if position != len(raw):
        raise SpdyError("a header block is longer than its headers")
    return headers


def _number(raw: bytes, position: int) -> tuple[int, int]:
    end = position + LENGTH.size
    if end > len(raw):
        raise SpdyError("a header block ends early")
    return LENGTH.unpack_from(raw, position)[0], end


def _text(raw: bytes, position: int) -> tuple[str, int]:
    size, begin = _number(raw, position)
    if begin + size > len(raw):
        raise SpdyError("a header block ends early")
    # One byte a character, also in memory: other encodings would multiply what a peer has us hold.
    return raw[begin : begin + size].decode("latin-1"), begin + size
