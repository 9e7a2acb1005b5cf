"""One call of grpc.health.v1.Health/Check: the little of HTTP/2 that it takes, without TLS, as kubelets call.

The answer's headers are never unpacked: what counts is the message, and a call that is refused has none.
"""

import socket
import struct
import time
from typing import Dict, Tuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_DATA, FRAME_HEADERS, FRAME_RESET, FRAME_SETTINGS, FRAME_PING, FRAME_GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, ACK, END_HEADERS, PADDED = 0x1, 0x1, 0x4, 0x8
FRAME_HEAD = 9
SEVEN_BITS = 0x7F
LARGEST_FRAME = 16384
"""HTTP/2's own default, of which nothing else was agreed."""
MOST_RECEIVED = 256 * 1024
ONLY_STREAM = 1
HEALTH_PATH = "/grpc.health.v1.Health/Check"
HEALTH_SERVING = 1
HEALTH_STATUSES = {0: "UNKNOWN", HEALTH_SERVING: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
NO_ANSWER = "the server does not answer grpc.health.v1.Health/Check"


def call_health(connection: socket.socket, authority: str, service: str, until: float) -> Tuple[bool, str]:
    connection.settimeout(max(0.001, until - time.monotonic()))
    connection.sendall(PREFACE + frame(FRAME_SETTINGS, 0, 0, b"") + health_request(authority, service))
    status = HEALTH_STATUSES.get(read_health(connection, until), "UNKNOWN")
    return status == HEALTH_STATUSES[HEALTH_SERVING], "service unhealthy (responded with {!r})".format(status)


def health_request(authority: str, service: str) -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": HEALTH_PATH,
        ":authority": authority,
        "content-type": "application/grpc",
        "te": "trailers",
        "user-agent": "kube-probe/redbox",
    }
    name = service.encode()
    message = b"\x0a" + varint(len(name)) + name if name else b""
    body = b"\0" + struct.pack(">I", len(message)) + message
    return frame(FRAME_HEADERS, END_HEADERS, ONLY_STREAM, pack_headers(fields)) + frame(
        FRAME_DATA, END_STREAM, ONLY_STREAM, body
    )


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def pack_headers(fields: Dict[str, str]) -> bytes:
    """Each as a literal with its name, neither indexed nor in Huffman's code."""
    texts = (text.encode() for field in fields.items() for text in field)
    packed = (prefixed(len(text)) + text for text in texts)
    return b"".join(b"\0" + name + next(packed) for name in packed)


def prefixed(number: int) -> bytes:
    """An integer of HPACK in seven bits and those that follow."""
    return bytes([number]) if number < SEVEN_BITS else b"\x7f" + varint(number - SEVEN_BITS)


def varint(number: int) -> bytes:
    packed = bytearray()
    while number > SEVEN_BITS:
        packed.append((number & SEVEN_BITS) | 0x80)
        number >>= 7
    return bytes(packed) + bytes([number])


def read_health(connection: socket.socket, until: float) -> int:
    """Of the answer's message; raises OSError where there is none."""
    body, received = b"", 0
    while True:
        size, kind, flags, stream = read_frame_head(connection, until)
        received += size
        if size > LARGEST_FRAME or received > MOST_RECEIVED:
            raise OSError(NO_ANSWER + ": its answer is too large")
        payload = read_exactly(connection, size, until)
        if kind in (FRAME_SETTINGS, FRAME_PING) and not flags & ACK:
            connection.sendall(frame(kind, ACK, 0, payload if kind == FRAME_PING else b""))
        elif kind == FRAME_GOAWAY or (kind == FRAME_RESET and stream == ONLY_STREAM):
            raise OSError(NO_ANSWER + ": it has refused the call")
        elif stream == ONLY_STREAM and kind in (FRAME_DATA, FRAME_HEADERS):
            if kind == FRAME_DATA:
                body += payload[1 : len(payload) - payload[0]] if flags & PADDED and payload else payload
            if flags & END_STREAM:
                return health_of(body)


def health_of(body: bytes) -> int:
    """A message without a compression, whose first field is the status."""
    if len(body) < 5 or body[0]:  # noqa: PLR2004 (the head of a message of gRPC)
        raise OSError(NO_ANSWER + ": the server may not implement it")
    message = body[5:]
    return message[1] if message[:1] == b"\x08" and len(message) > 1 else 0


def read_frame_head(connection: socket.socket, until: float) -> Tuple[int, int, int, int]:
    head = read_exactly(connection, FRAME_HEAD, until)
    kind, flags, stream = struct.unpack(">BBI", head[3:])
    return int.from_bytes(head[:3], "big"), kind, flags, stream & 0x7FFFFFFF


def read_exactly(connection: socket.socket, size: int, until: float) -> bytes:
    data = b""
    while len(data) < size:
        connection.settimeout(max(0.001, until - time.monotonic()))
        piece = connection.recv(size - len(data))
        if not piece:
            raise OSError(NO_ANSWER + ": it has closed the connection")
        data += piece
    return data
