"""On a login host: one tenant's floods, and another's PUT, GET and log line meanwhile; prints JSON.

python3 tenants.py, with {"ca": PEM, "alice": {...}, "bob": {...}, "flood": NAME or null, "seconds": N} as
stdin: of each tenant its token, its address, and the key of its running job.
"""

import base64
import contextlib
import json
import multiprocessing
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

PORT = 8443
PATIENCE_S = 60
PAUSE_S = 0.06
READ = 1 << 18
SETTLES_S = 1.5
LARGE_CHECK = 10_000  # lines; of larger ones the work is off the event loop
Asked = dict[str, Any]


class RefusedError(Exception):
    """red-box has refused a request of the flood: there are too many."""


class Connection:
    """One HTTP connection over TLS, with as little work of its own as possible."""

    def __init__(self, asked: Asked, tenant: str) -> None:
        self.context = context_of(asked["ca"])
        self.address = asked[tenant]["address"]
        self.head = f"Host: redbox\r\nAuthorization: Bearer {asked[tenant]['token']}\r\n"
        self.connect()

    def connect(self) -> None:
        plain = connected(self.address)
        self.socket = self.context.wrap_socket(plain, server_hostname="127.0.0.1")
        self.received = b""

    def send(self, method: str, path: str, body: bytes = b"", more: str = "") -> None:
        kind = "Content-Type: application/json\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\n{self.head}{kind}{more}Content-Length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)

    def status(self) -> int:
        while b"\r\n\r\n" not in self.received:
            data = self.socket.recv(READ)
            if not data:
                raise ConnectionResetError
            self.received += data
        head, _, self.received = self.received.partition(b"\r\n\r\n")
        self.headers = head.lower()
        return int(head[9:12])

    def answer(self) -> tuple[int, bytes]:
        status = self.status()
        marker = b"content-length: "
        length = int(self.headers.partition(marker)[2].partition(b"\r")[0]) if marker in self.headers else 0
        while len(self.received) < length:
            self.received += self.socket.recv(READ)
        body, self.received = self.received[:length], self.received[length:]
        return status, body

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        self.send(method, path, body)
        return self.answer()

    def drain(self, count: int) -> None:
        buffer = bytearray(READ)
        while count > 0:
            got = self.socket.recv_into(buffer)
            if not got:
                return
            count -= got


def context_of(authority: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority)


def connected(address: str) -> socket.socket:
    plain = socket.socket()
    plain.settimeout(PATIENCE_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    plain.bind((address, 0))
    plain.connect(("127.0.0.1", PORT))
    return plain


# ---------------------------------------------------------------------------------------------- alice
def whoami(asked: Asked) -> Iterator[None]:
    connection = Connection(asked, "alice")
    while True:
        connection.ask("GET", "/v1/whoami")
        yield


def connects(asked: Asked) -> Iterator[None]:
    while True:
        connected(asked["alice"]["address"]).close()
        yield


def tls_connects(asked: Asked) -> Iterator[None]:
    while True:
        Connection(asked, "alice").socket.close()
        yield


def half_open_websockets(asked: Asked) -> Iterator[None]:
    """Upgrades whose first message never comes; each is held for a while."""
    held: list[Connection] = []
    path = f"/v1/jobs/{asked['alice']['key']}/exec"
    while True:
        connection = Connection(asked, "alice")
        upgrade(connection, path)
        held.append(connection)
        if len(held) > 20:
            held.pop(0).socket.close()
        yield


def upgrade(connection: Connection, path: str) -> None:
    nonce = base64.b64encode(os.urandom(16)).decode()
    connection.send(
        "GET",
        path,
        more="Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {nonce}\r\nSec-WebSocket-Protocol: v1.exec.redbox.dev\r\n",
    )
    status = connection.status()
    if status != 101:
        raise RefusedError(f"the upgrade was answered by {status}: {connection.received[:300]!r}")


def exec_output(asked: Asked) -> Iterator[None]:
    """Commands whose output has no end; on a compute node they would not take this machine's processor."""
    while True:
        connection = Connection(asked, "alice")
        upgrade(connection, f"/v1/jobs/{asked['alice']['key']}/exec")
        request = json.dumps({"command": ["nice", "-n19", "yes", "0123456789" * 10], "stdin": False}).encode()
        mask = b"\0\0\0\0"
        size = len(request)
        head = bytes([0x81, 0x80 | size]) if size < 126 else bytes([0x81, 0xFE]) + size.to_bytes(2, "big")
        connection.socket.sendall(head + mask + request)
        with contextlib.suppress(OSError):
            for _ in range(500):
                connection.drain(1 << 20)
                yield
        connection.socket.close()


def downloads(asked: Asked) -> Iterator[None]:
    connection = Connection(asked, "alice")
    while True:
        connection.send("GET", f"/v1/jobs/{asked['alice']['key']}/files/large")
        if connection.status() != 200:
            raise RuntimeError(connection.received[:300])
        size = int(connection.headers.partition(b"content-length: ")[2].partition(b"\r")[0])
        connection.drain(size - len(connection.received))
        connection.received = b""
        yield


def uploads(asked: Asked) -> Iterator[None]:
    connection = Connection(asked, "alice")
    body = bytes(20 << 20)
    path = f"{asked['alice']['uploads']}/{uuid4()}"  # in memory: the disk is everybody's, and not red-box's
    while True:
        connection.ask("PUT", f"/v1/jobs/{asked['alice']['key']}/files/{path}", body)
        yield


def watches(asked: Asked) -> Iterator[None]:
    """Each begins with all of the list."""
    held = [Connection(asked, "alice") for _ in range(16)]
    for connection in held:
        connection.send("GET", "/v1/jobs?watch=true")
    while True:
        connection = Connection(asked, "alice")
        connection.send("GET", "/v1/jobs?watch=true")
        connection.status()
        connection.socket.close()
        yield


def checks(asked: Asked) -> Iterator[None]:
    connection = Connection(asked, "alice")
    body = json.dumps({"batch": "#!/bin/sh\n" + "\n" * LARGE_CHECK}).encode()
    while True:
        connection.ask("POST", "/v1/check", body)
        yield


def refused_submits(asked: Asked) -> Iterator[None]:
    connection = Connection(asked, "alice")
    body = json.dumps({"batch": "#!/bin/sh\ntrue\n", "hold": True, "output": "/dev/null"}).encode()
    while True:
        connection.ask("PUT", f"/v1/jobs/{uuid4()}", body)
        yield


FLOODS: dict[str, tuple[Callable[[Asked], Iterator[None]], int]] = {
    "whoami": (whoami, 32),
    "connects": (connects, 4),
    "tls-connects": (tls_connects, 16),
    "websockets": (half_open_websockets, 16),
    "downloads": (downloads, 8),
    "uploads": (uploads, 8),
    "exec": (exec_output, 8),
    "watches": (watches, 32),
    "checks": (checks, 8),
    "submits": (refused_submits, 32),
}


def flood(asked: Asked, name: str, counter: Any) -> None:
    """Until the process is ended. It yields the processor to bob: red-box is measured, not the machine."""
    os.nice(asked.get("nice", 19))
    made, parallel = FLOODS[name]
    count = [0] * parallel

    def go_on(number: int) -> None:
        while True:
            try:
                for _ in made(asked):
                    count[number] += 1
            except (OSError, RefusedError):
                time.sleep(0.05)

    for number in range(parallel):
        threading.Thread(target=go_on, args=(number,), daemon=True).start()
    while True:
        time.sleep(0.1)
        counter.value = sum(count)


@contextlib.contextmanager
def flooded(asked: Asked, name: str) -> Iterator[Any]:
    counter = multiprocessing.Value("q", 0)
    process = multiprocessing.Process(target=flood, args=(asked, name, counter), daemon=True)
    process.start()
    try:
        time.sleep(SETTLES_S)
        yield counter
        if not process.is_alive():
            raise RuntimeError("the flood has ended")
    finally:
        process.kill()
        process.join()
        time.sleep(SETTLES_S)


# ---------------------------------------------------------------------------------------------- bob
def end_all(failed: threading.ExceptHookArgs) -> None:
    """A thread's failure is the program's: without its thread bob would see no line."""
    threading.__excepthook__(failed)
    os._exit(1)


def follow(asked: Asked, seen: list[tuple[float, float]]) -> None:
    connection = Connection(asked, "bob")
    connection.send("GET", f"/v1/jobs/{asked['bob']['key']}/logs/stdout?follow=true&tail=0")
    status = connection.status()
    text = connection.received
    if status != 200:
        raise RuntimeError(f"the log: {status} {text[:300]!r}")
    while True:
        *lines, text = text.split(b"\n")
        now = time.time()
        for line in lines:
            with contextlib.suppress(ValueError):  # a size of a chunk
                written = float(line)
                if written > 1e9:
                    seen.append((now, now - written))
        received = connection.socket.recv(READ)
        if not received:
            raise RuntimeError("the log ended")
        text += received


def bob(asked: Asked, seconds: float) -> dict[str, list[float]]:
    """One request after the other, as a companion sends them."""
    lines: list[tuple[float, float]] = []
    threading.Thread(target=follow, args=(asked, lines), daemon=True).start()
    connection = Connection(asked, "bob")
    body = json.dumps({"batch": "#!/bin/sh\ntrue\n", "hold": True, "output": "/dev/null"}).encode()
    taken: dict[str, list[float]] = {"put": [], "get": [], "line": []}
    begun = time.time()
    while time.time() < begun + seconds:
        key = uuid4()
        for name, method, sent in (("put", "PUT", body), ("get", "GET", b"")):
            started = time.perf_counter()
            status, answer = connection.ask(method, f"/v1/jobs/{key}", sent)
            taken[name].append(time.perf_counter() - started)
            if status not in {200, 201}:
                raise RuntimeError(f"{method}: {status} {answer[:300]!r}")
        time.sleep(PAUSE_S)
    taken["line"] = [late for now, late in lines if now > begun + 0.5] or [
        seconds
    ]  # none came: at least that
    return taken


def measure(asked: Asked) -> dict[str, Any]:
    """What bob saw, in seconds, and how often a second alice's flood went round."""
    seconds = asked["seconds"]
    bob(asked, 1)
    if asked["flood"] is None:
        return {**bob(asked, seconds), "rate": 0}
    with flooded(asked, asked["flood"]) as counter:
        before = counter.value
        seen = bob(asked, seconds)
        return {**seen, "rate": (counter.value - before) / seconds}


if __name__ == "__main__":
    threading.excepthook = end_all
    print(json.dumps(measure(json.load(sys.stdin))))
