"""Red-box's side of ports and sessions: a small WebSocket server before a real connection or command."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import subprocess
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

from redbox_shared.wire import PORTS_WINDOW

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
    handler.send_header("Redbox-Stream", "the-id")
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


class PlayedForward:
    """Connections to ports of this machine, as the relay makes them on the job's node."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler
        self._writing = threading.Lock()  # TLS has one writer at a time
        self._open: dict[bytes, socket.socket] = {}
        self._credit: dict[bytes, int] = {}
        self._granted = threading.Condition()

    def carry(self) -> None:
        while (frame := read_frame(self._handler.rfile))[0] != CLOSE:
            channel, number, data = frame[1][0], frame[1][1:5], frame[1][5:]
            with suppress(OSError):
                if channel == 6:
                    self._connect(number, json.loads(data))
                elif channel == 0:
                    self._open[number].sendall(data)
                    self._say(7, number, (64 + len(data)).to_bytes(4))
                elif channel == 7:
                    self._grant(number, int.from_bytes(data))
                elif data == b"\0":
                    self._open[number].shutdown(socket.SHUT_WR)
        for connection in self._open.values():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _connect(self, number: bytes, request: dict[str, Any]) -> None:
        try:
            connection = socket.create_connection(("127.0.0.1", request["port"]), timeout=60)
        except OSError as error:
            failure = {"kind": "Status", "status": "Failure", "reason": "PortRefused", "message": str(error)}
            self._say(3, number, json.dumps(failure).encode())
            return
        if request.get("probe"):
            connection.close()
            self._say(3, number, json.dumps(SUCCESS).encode())
            return
        self._open[number] = connection
        self._grant(number, PORTS_WINDOW)
        threading.Thread(target=self._copy, args=(number, connection), daemon=True).start()

    def _copy(self, number: bytes, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(16384):
                self._spend(number, 64 + len(data))
                self._say(1, number, data)
            self._say(255, number, b"\1")
            self._say(3, number, json.dumps(SUCCESS).encode())

    def _grant(self, number: bytes, credit: int) -> None:
        with self._granted:
            self._credit[number] = self._credit.get(number, 0) + credit
            self._granted.notify_all()

    def _spend(self, number: bytes, cost: int) -> None:
        with self._granted:
            if not self._granted.wait_for(lambda: self._credit[number] >= cost, timeout=60):
                raise TimeoutError
            self._credit[number] -= cost

    def _say(self, channel: int, number: bytes, data: bytes) -> None:
        with self._writing, suppress(OSError):
            self._handler.wfile.write(server_frame(BINARY, bytes([channel]) + number + data))


class PlayedSession:
    """One command of this machine. With a terminal it is played: each size is written, and ^C ends it."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler
        self._writing = threading.Lock()  # TLS has one writer at a time

    def carry(self) -> None:
        first = json.loads(read_frame(self._handler.rfile)[1])
        if first["tty"]:
            self._play_terminal(first["size"])
        else:
            self._run(first["command"])

    def _say(self, channel: int, data: bytes) -> None:
        self._write(server_frame(BINARY, bytes([channel]) + data))

    def _write(self, frame: bytes) -> None:
        with self._writing, suppress(OSError):
            self._handler.wfile.write(frame)

    def _end(self, code: int) -> None:
        cause = {"reason": "ExitCode", "message": str(code)}
        failure = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}
        self._say(3, json.dumps({"kind": "Status", **failure} if code else SUCCESS).encode())
        self._write(server_frame(CLOSE, b""))

    def _play_terminal(self, size: dict[str, int]) -> None:
        self._say(1, f"{size['columns']}x{size['rows']}\n".encode())
        while (message := read_frame(self._handler.rfile)[1])[:2] != b"\0\x03":
            document = json.loads(message[1:])
            self._say(1, f"{document['Width']}x{document['Height']}\n".encode())
        self._end(130)

    def _run(self, argv: list[str]) -> None:
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe) as command:
            assert command.stdin is not None
            copying = [
                threading.Thread(target=self._copy, args=row)
                for row in ((1, command.stdout), (2, command.stderr))
            ]
            ending = threading.Thread(target=self._wait, args=(command, copying))
            for thread in (*copying, ending):
                thread.start()
            while (frame := read_frame(self._handler.rfile))[0] != CLOSE:
                with suppress(OSError, ValueError):
                    if frame[1] == b"\xff\x00":
                        command.stdin.close()
                    else:
                        command.stdin.write(frame[1][1:])
                        command.stdin.flush()
            command.kill()
            ending.join()

    def _copy(self, channel: int, pipe: Any) -> None:
        while data := pipe.read1(16384):
            self._say(channel, data)

    def _wait(self, command: subprocess.Popen[bytes], copying: list[threading.Thread]) -> None:
        for thread in copying:
            thread.join()
        self._end(command.wait())
