"""The frames on an agent's stdin and stdout: their types, their bounds, and the agent's reader and writer.

A frame is a prefix, a small JSON object and raw bytes. Frames of one request carry its number, which the
server chooses. The bytes of a REQUEST are the beginning of its input, which costs no credit. DATA and EVENT
cost credit (their whole length), which the receiver grants again as it consumes them, so that a slow reader
blocks only its own stream. The server's reader, which does not trust the agent, is in
`redbox.agents.protocol.frames`.
"""

import hashlib
import json
import os
import struct
import threading
from typing import Any, BinaryIO, Dict, List, Optional, Tuple

PROTOCOL = 2  # raised by each change that an installed agent of before cannot follow
PREFIX = struct.Struct(">BIII")  # kind, request, length of the JSON object, length of the bytes
REQUEST, DATA, END, CREDIT, CANCEL, EVENT, DONE, FAILED, PING, PONG = range(1, 11)
MAX_HEADER = 256 * 1024
MAX_PAYLOAD = 1024 * 1024
WINDOW = 1024 * 1024  # initial credit of each side of a request
CHUNK = 256 * 1024  # bytes per DATA frame: four in a window keep both sides busy

WireFrame = Tuple[int, int, Dict[str, Any], bytes]


class MalformedFrame(Exception):
    """The input is not a frame: the rest cannot be read either."""


def hello_line(nonce: bytes) -> bytes:
    """Return the agent's answer to a nonce: not the nonce itself, which a shell may echo."""
    return b"redbox-agent " + hashlib.sha256(nonce).hexdigest().encode() + b"\n"


def frame_cost(header: bytes, payload: bytes) -> int:
    return PREFIX.size + len(header) + len(payload)


def encode_header(header: Optional[Dict[str, Any]]) -> bytes:
    return json.dumps(header).encode() if header else b""


def read_exactly(source: BinaryIO, count: int) -> bytes:
    data = source.read(count)
    if len(data) != count:
        raise EOFError
    return data


def read_frame(source: BinaryIO) -> WireFrame:
    kind, request, header_length, payload_length = PREFIX.unpack(read_exactly(source, PREFIX.size))
    if header_length > MAX_HEADER or payload_length > MAX_PAYLOAD:
        raise MalformedFrame("a frame of {} + {} bytes".format(header_length, payload_length))
    header = read_header(read_exactly(source, header_length)) if header_length else {}
    return kind, request, header, read_exactly(source, payload_length)


def read_header(data: bytes) -> Dict[str, Any]:
    try:
        header = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise MalformedFrame("a header is not JSON: {}".format(error)) from None
    if not isinstance(header, dict):
        raise MalformedFrame("a header is not an object")
    return header


class FrameWriter:
    """Writes whole frames to one descriptor from many threads; drops them once the server is gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._gone = False

    def write(self, kind: int, request: int, header: bytes = b"", payload: bytes = b"") -> None:
        prefix = PREFIX.pack(kind, request, len(header), len(payload))
        with self._lock:
            if self._gone:
                return
            try:
                self._write_all([memoryview(prefix + header), memoryview(payload)])
            except OSError:
                self._gone = True

    def _write_all(self, parts: List[memoryview]) -> None:
        while parts:
            written = os.writev(self._descriptor, parts)
            while parts and written >= len(parts[0]):
                written -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][written:]
