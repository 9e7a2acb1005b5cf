"""The frames on a relay's stdin and stdout: kinds, bounds, and a decoder that both sides use.

A frame is a prefix and bytes. Frames of one stream, which is a session or a connection, carry its number,
which the server chooses. DATA costs credit of its stream and direction, so that a stalled stream holds back
no other.

What the server orders is written by marshal: a relay executes what it reads from the server anyway, and need
not wait for the import of json. What a relay reports is JSON: it is a stranger to the server.
"""

import json
import marshal
import struct
from typing import Any, Dict, Iterator, NamedTuple, Union

Buffer = Union[bytes, memoryview]
PREFIX = struct.Struct(">BII")  # kind, stream, length
CREDIT_BYTES = struct.Struct(">I")
OPEN, DATA, CREDIT, CLOSE, RESIZE, KILL, STATUS, PING, PONG, HELLO = range(1, 11)
KINDS = frozenset(range(OPEN, HELLO + 1))
STDIN, STDOUT, STDERR = 0, 1, 2  # the first byte of DATA and the only one of CLOSE; a port's data are 0 and 1
MAX_DATA = 64 * 1024
MAX_FRAME = 2 * 1024 * 1024 + MAX_DATA  # an OPEN has the whole command
OUTPUT_WINDOW = 512 * 1024
"""Credit of a stream towards red-box, whose memory all users share."""
INPUT_WINDOW = 2048 * 1024
"""Towards the relay, in the job's own memory: what Slurm holds on the way, some 1 MiB, is not waited for."""
FRAME_COST = (
    64  # of a DATA frame beside its bytes: a window has room for 8,000 frames, not for half a million
)
MAX_STREAMS = 1024
ORDER_FORMAT = 2  # of marshal's: that of every Python 3
HEARTBEAT_S = 45.0
"""A relay that has received no frame for so long ends: its server is gone."""


class BadFrame(Exception):
    """The input is not a frame: the rest cannot be read either."""


class RelayFrame(NamedTuple):
    """One frame."""

    kind: int
    stream: int
    payload: bytes


def frame_bytes(kind: int, stream: int = 0, payload: bytes = b"") -> bytes:
    return PREFIX.pack(kind, stream, len(payload)) + payload


def data_frame(stream: int, channel: int, data: Buffer) -> bytes:
    """A DATA frame, whose bytes are copied only once."""
    return b"".join((PREFIX.pack(DATA, stream, 1 + len(data)), bytes((channel,)), data))


def order_bytes(order: Dict[str, Any]) -> bytes:
    return marshal.dumps(order, ORDER_FORMAT)


def read_order(payload: bytes) -> Dict[str, Any]:
    try:
        order = marshal.loads(payload)  # noqa: S302 # who sends it has sent this program
    except (EOFError, MemoryError, TypeError, ValueError) as error:
        raise BadFrame(f"not an order: {error}") from None
    if not isinstance(order, dict):
        raise BadFrame("not an order")
    return order


def report_bytes(report: Dict[str, Any]) -> bytes:
    return json.dumps(report, ensure_ascii=False).encode("utf-8", "surrogatepass")


def read_report(payload: bytes) -> Dict[str, Any]:
    try:
        report = json.loads(payload.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"not JSON: {error}") from None
    if not isinstance(report, dict):
        raise BadFrame("not a JSON object")
    return report


def data_cost(count: int) -> int:
    """The price in credit of a DATA frame with so many bytes of the stream."""
    return FRAME_COST + count


def read_credit(payload: bytes) -> int:
    if len(payload) != CREDIT_BYTES.size:
        raise BadFrame(f"credit of {len(payload)} bytes")
    granted: int = CREDIT_BYTES.unpack(payload)[0]
    return granted


class RelayDecoder:
    """Turns bytes in chunks of any size into frames; it holds at most one incomplete frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[RelayFrame]:
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= PREFIX.size:
                kind, stream, length = PREFIX.unpack_from(self._buffer, start)
                if kind not in KINDS or length > (MAX_DATA + 1 if kind == DATA else MAX_FRAME):
                    raise BadFrame(f"kind {kind}, {length} bytes")
                end = start + PREFIX.size + length
                if len(self._buffer) < end:
                    break
                with memoryview(self._buffer) as view:
                    payload = bytes(view[start + PREFIX.size : end])
                start = end
                yield RelayFrame(kind, stream, payload)
        finally:
            del self._buffer[:start]
