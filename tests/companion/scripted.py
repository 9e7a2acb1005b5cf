"""A red-box that answers by script: for faults that a real one makes only by luck (half an answer, 503s)."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Scripted:
    """What the server has, and what it was asked."""

    job: dict[str, Any] | None = None
    logs: dict[str, bytes] = field(default_factory=lambda: {"stdout": b"", "stderr": b""})
    generation: str = "g1"
    piece: int = 7
    break_after: int = 1_000_000
    refuse_put: tuple[int, dict[str, Any]] | None = None
    refuse_log: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0


@contextmanager
def serving(scripted: Scripted, certificate: tuple[Path, Path]) -> Iterator[Scripted]:
    """Serve on a loopback port until the block ends."""
    handler = type("Handler", (_Handler,), {"scripted": scripted})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    scripted.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield scripted
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    scripted: Scripted
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self._stumble("GET"):
            return
        if "/logs/" in self.path:
            self._log()
        elif self.scripted.job is None:
            self._json(404, {"title": "There is no such thing", "detail": "no such job"})
        else:
            self._json(200, self.scripted.job)

    def do_PUT(self) -> None:
        self.scripted.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if self._stumble("PUT"):
            return
        if self.scripted.refuse_put:
            self._json(*self.scripted.refuse_put)
            return
        self.scripted.job = {"phase": "Succeeded", "exitCode": 0, "jobID": "7", "state": "COMPLETED"}
        self._json(201, self.scripted.job)

    def _stumble(self, method: str) -> bool:
        self.scripted.asked.append((method, self.path))
        if not self.scripted.failures:
            return False
        self._json(self.scripted.failures.pop(0), {"title": "Not now", "detail": "starting", "retry": True})
        return True

    def _log(self) -> None:
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        stream = address.path.rpartition("/")[2]
        if stream in self.scripted.refuse_log:
            self._json(*self.scripted.refuse_log[stream])
            return
        offset = int(query["offset"][0])
        if query.get("generation", [self.scripted.generation])[0] != self.scripted.generation:
            offset = 0
        rest = self.scripted.logs[stream][offset:]
        if not rest:
            self.send_response(204)
            self.end_headers()
            return
        self._pieces(rest, offset)

    def _pieces(self, rest: bytes, offset: int) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Redbox-Generation", self.scripted.generation)
        self.send_header("Redbox-Offset", str(offset))
        self.end_headers()
        sent = 0
        for start in range(0, len(rest), self.scripted.piece):
            piece = rest[start : start + self.scripted.piece]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            sent += len(piece)
            if sent >= self.scripted.break_after:
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass
