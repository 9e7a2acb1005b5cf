"""A red-box that answers by script: for faults that a real one makes only by luck (half an answer, 503s)."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from redbox_shared.wire import PROBLEMS
from tests.companion.websocket_server import PlayedForward, PlayedSession, accept_upgrade

Refusal = tuple[int, dict[str, Any]]
NOTHING_THERE: Refusal = (404, {"title": "There is no such thing", "detail": "the globs find nothing"})


@dataclass
class ScriptedServer:
    """What the server has, and what it was asked."""

    job: dict[str, Any] | None = None
    answers: list[dict[str, Any]] = field(default_factory=list)  # about the job, before `job`
    after_log: dict[str, Any] | None = None  # what the job becomes when its stdout has been read
    logs: dict[str, bytes] = field(default_factory=lambda: {"stdout": b"", "stderr": b""})
    task_logs: dict[str, bytes] = field(default_factory=dict)
    late: dict[str, bytes] = field(default_factory=dict)  # what a task's log is when it is followed
    tars: dict[str, bytes] = field(default_factory=dict)
    generation: str = "g1"
    piece: int = 7
    break_after: int = 1_000_000
    breaks: int = 1_000_000  # how many answers break off there
    refuse_put: list[Refusal] = field(default_factory=list)
    refuse_log: dict[str, Refusal] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    strange: list[bytes] = field(default_factory=list)  # whole answers of something that is no red-box
    asked: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    hold: threading.Event | None = None  # no response before it is set
    drop_after: int = 1_000_000  # responses on one connection, which is then closed without a word
    unasked: bytes = b""  # what it sends behind its first response
    sent_unasked: threading.Event = field(default_factory=threading.Event)
    refuse_port: Refusal | None = None
    forwards: list[socket.socket] = field(default_factory=list)

    def end_forwards(self) -> None:
        """As a red-box that is killed."""
        while self.forwards:
            with suppress(OSError):
                self.forwards.pop().shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(scripted: ScriptedServer, certificate: tuple[Path, Path]) -> Iterator[ScriptedServer]:
    """Serve on a loopback port until the block ends."""
    handler = type("Handler", (_Handler,), {"scripted": scripted})
    server = _Server(("127.0.0.1", scripted.port), handler)
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


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A companion that goes, or does not trust the certificate, is what tests are about."""


class _Handler(BaseHTTPRequestHandler):
    scripted: ScriptedServer
    protocol_version = "HTTP/1.1"
    sent = 0

    def setup(self) -> None:
        super().setup()
        self.scripted.connections += 1

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(code, message)
        self.sent += 1
        self.close_connection = self.close_connection or self.sent >= self.scripted.drop_after

    def do_GET(self) -> None:
        if self._stumble("GET"):
            return
        if "/ports?" in self.path:
            self._ports()
        elif "/exec?" in self.path:
            self._session()
        elif "/logs/" in self.path:
            self._log()
        elif "/archive" in self.path:
            self._archive()
        elif self.scripted.job is None and not self.scripted.answers:
            self._json(404, {"title": "There is no such thing", "detail": "no such job"})
        else:
            self._job(200)

    def do_PUT(self) -> None:
        self.scripted.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if self._stumble("PUT"):
            return
        if self.scripted.refuse_put:
            self._json(*self.scripted.refuse_put.pop(0))
            return
        self.scripted.job = {"phase": "Succeeded", "exitCode": 0, "jobID": "7", "state": "COMPLETED"}
        self._job(201)

    def _job(self, status: int) -> None:
        """As the job that is asked for, unless the script has another one."""
        address = urlsplit(self.path)
        attempt = int(parse_qs(address.query)["attempt"][0])
        asked_for = {"key": address.path.rpartition("/")[2], "attempt": attempt}
        self._json(
            status,
            asked_for | (self.scripted.answers.pop(0) if self.scripted.answers else self.scripted.job or {}),
        )

    def do_POST(self) -> None:
        """Of a stream that is renewed."""
        if not self._stumble("POST"):
            self.send_response(204)
            self.end_headers()

    def _stumble(self, method: str) -> bool:
        self.scripted.asked.append((method, self.path))
        self.scripted.tokens.add(self.headers["Authorization"])
        if self.scripted.hold is not None:
            self.scripted.hold.wait(60)
        if self.scripted.strange:
            self.wfile.write(self.scripted.strange.pop(0))
            self.close_connection = True
            return True
        if not self.scripted.failures:
            return False
        status = self.scripted.failures.pop(0)
        self._json(status, {"title": "Not now", "detail": "starting", "retry": status != 401})
        return True

    def _log(self) -> None:
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        stream = address.path.rpartition("/")[2]
        name = " ".join((stream, *query.get("task", ())))
        if name in self.scripted.refuse_log:
            self._json(*self.scripted.refuse_log[name])
            return
        offset = int(query["offset"][0])
        if query.get("generation", [self.scripted.generation])[0] != self.scripted.generation:
            offset = 0
        whole = self.scripted.logs[stream]
        if "task" in query:
            late = self.scripted.late if query["follow"] == ["true"] else {}
            whole = {**self.scripted.task_logs, **late}.get(name, b"")
        if rest := whole[offset:]:
            self._pieces(rest, offset)
            return
        self.send_response(204)
        self.send_header("Redbox-Offset", str(offset))
        self.end_headers()
        if stream == "stdout":
            self.scripted.job = self.scripted.after_log or self.scripted.job

    def _session(self) -> None:
        if self.scripted.refuse_port:
            self._json(*self.scripted.refuse_port)
            return
        accept_upgrade(self)
        PlayedSession(self).carry()
        self.close_connection = True

    def _ports(self) -> None:
        """As red-box: a refusal before the upgrade, the end of each connection after it."""
        if self.scripted.refuse_port:
            self._json(*self.scripted.refuse_port)
            return
        accept_upgrade(self)
        self.close_connection = True
        self.scripted.forwards.append(self.connection)
        PlayedForward(self).carry()

    def _archive(self) -> None:
        glob = parse_qs(urlsplit(self.path).query)["glob"][0]
        if glob in self.scripted.tars:
            self._pieces(self.scripted.tars[glob], 0)
        else:
            self._json(*NOTHING_THERE)

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
            if sent >= self.scripted.break_after and self.scripted.breaks:
                self.scripted.breaks -= 1
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, body: dict[str, Any]) -> None:
        problem = {"type": f"{PROBLEMS}scripted"} if status >= 400 else {}
        raw = json.dumps(problem | body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
        if self.scripted.unasked:
            self.wfile.write(self.scripted.unasked)
            self.scripted.unasked = b""
            self.scripted.sent_unasked.set()

    def log_message(self, *_: Any) -> None:
        pass
