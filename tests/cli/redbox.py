"""A server in red-box's place that answers whatever a test has put there: the real one is on the bed."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from redbox.server.certificates import issue_server, make_authority


class RedboxInPlace:
    """Its address and authority, and the body of its next answers."""

    def __init__(self, endpoint: str, authority: bytes) -> None:
        self.endpoint = endpoint
        self.authority = authority
        self.body = b"{}"
        self.headers: dict[str, str] = {}
        self.status = 200
        self.pause_s = 0.0
        """Before each byte of the body."""


@contextlib.contextmanager
def redbox_in_place(folder: Path) -> Iterator[RedboxInPlace]:
    """Serves on a loopback port until the block ends."""
    now = datetime.now(UTC)
    authority = make_authority("tests", now)
    pair = issue_server(authority, [], ["127.0.0.1"], now)
    (folder / "crt").write_bytes(pair.certificate)
    (folder / "key").write_bytes(pair.key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(redbox.status)
            if redbox.pause_s:
                self.send_header("Content-Length", str(len(redbox.body)))
            self.close_connection = not redbox.pause_s
            for name, value in redbox.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if not redbox.pause_s:
                self.wfile.write(redbox.body)
                return
            with contextlib.suppress(OSError):  # the other end has gone
                for byte in redbox.body:
                    time.sleep(redbox.pause_s)
                    self.wfile.write(bytes([byte]))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "crt", folder / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    redbox = RedboxInPlace(f"https://127.0.0.1:{server.server_address[1]}", authority.certificate)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield redbox
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
