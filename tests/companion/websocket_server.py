"""Red-box's side of a port: a small WebSocket server, and a real connection behind it."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

BINARY, CLOSE = 2, 8
SUCCESS = {"kind": "Status", "status": "Success"}


def accept_upgrade(handler: BaseHTTPRequestHandler) -> None:
    key = handler.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    proof = base64.b64encode(hashlib.sha1(key.encode(), usedforsecurity=False).digest()).decode()
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Sec-WebSocket-Accept", proof)
    handler.send_header("Sec-WebSocket-Protocol", handler.headers["Sec-WebSocket-Protocol"])
    handler.end_headers()


def server_frame(kind: int, payload: bytes) -> bytes:
    size = len(payload)
    length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2) if size < 65536 else b""
    return bytes([0x80 | kind]) + (length or b"\x7f" + size.to_bytes(8)) + payload


def read_frame(file: Any) -> tuple[int, bytes]:
    """Kind and unmasked payload; a close at the end of the bytes."""
    head = file.read(2)
    if len(head) < 2:
        return CLOSE, b""
    assert head[1] & 0x80, "a client masks its frames"
    size = head[1] & 0x7F
    if size > 125:
        size = int.from_bytes(file.read(2 if size == 126 else 8))
    key, payload = file.read(4), file.read(size)
    return head[0] & 0x0F, bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


def carry_port(handler: BaseHTTPRequestHandler, port: int) -> None:
    """One connection to a port of this machine, as the relay makes one on the job's node."""

    def say(channel: int, data: bytes) -> None:
        handler.wfile.write(server_frame(BINARY, bytes([channel]) + data))

    try:
        there = socket.create_connection(("127.0.0.1", port), timeout=10)
    except OSError as error:
        failure = {"kind": "Status", "status": "Failure", "reason": "PortRefused", "message": str(error)}
        say(3, json.dumps(failure).encode())
        handler.wfile.write(server_frame(CLOSE, b""))
        return

    def from_job() -> None:
        with suppress(OSError):
            while data := there.recv(16384):
                say(1, data)
            say(255, b"\x01")

    copying = threading.Thread(target=from_job)
    copying.start()
    with there:
        while (frame := read_frame(handler.rfile))[0] != CLOSE:
            if frame[1][:1] == b"\x00":
                there.sendall(frame[1][1:])
            elif frame[1] == b"\xff\x00":
                there.shutdown(socket.SHUT_WR)
                copying.join()
                say(3, json.dumps(SUCCESS).encode())
                handler.wfile.write(server_frame(CLOSE, b""))
                break
        with suppress(OSError):
            there.shutdown(socket.SHUT_RDWR)
    copying.join()
