"""A server that a tenant could put where a SlurmEndpoint points to: it misbehaves in one manner at a time.

Without a manner it is a red-box without jobs, so that tests can see a link recover. It speaks HTTP itself: no
library would send what it sends. All that it sends is counted.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from redbox.server.certificates import issue_server, make_authority
from redbox_shared.wire import PROBLEMS

BOOKMARK_S = 1.0
MIB = 1024 * 1024
BOOKMARK = b'{"type":"bookmark","revision":"e.1"}\n'
SERVER_HELLO = (b"\x16", b"\3", b"\3", b"\x3f", b"\xff", b"\2")
"""The begin of a record of TLS with 16 KiB."""
EMPTY_LIST = b'{"items":[],"revision":"e.1"}'
OWNER = {"cluster": "", "namespace": "farm", "account": "default"}


@dataclass
class Asked:
    """One request, and where its answer goes."""

    path: str
    writer: asyncio.StreamWriter
    number: int
    """Of all requests."""

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.path


Manner = Callable[["HostileRedbox", Asked], Awaitable[None]]


@dataclass
class HostileRedbox:
    """The server; `rows` are events of jobs that a flood of them repeats."""

    manner: str = ""
    byte_s: float = 1.0
    rows: list[bytes] = field(default_factory=list)
    endpoint: str = ""
    ca: bytes = b""
    requests: int = 0
    sent: int = 0
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def serving(self, folder: Path, address: str = "127.0.0.1") -> AsyncIterator[None]:
        now = datetime.now(UTC)
        authority = make_authority("hostile", now)
        pair = issue_server(authority, ["localhost"], [address], now)
        (folder / "hostile.crt").write_bytes(pair.certificate)
        (folder / "hostile.key").write_bytes(pair.key)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "hostile.crt", folder / "hostile.key")

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._open.add(task)
            try:
                with suppress(
                    ConnectionError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.CancelledError
                ):
                    await self._serve(reader, writer, tls)
            finally:
                self._open.discard(task)
                writer.close()

        async with await asyncio.start_server(connected, address, 0) as listening:
            self.endpoint = f"https://{address}:{listening.sockets[0].getsockname()[1]}"
            self.ca = authority.certificate
            try:
                yield
            finally:
                self.hang_up()
                if self._open:
                    await asyncio.wait(self._open)

    def hang_up(self) -> None:
        """End all connections: those that come have the manner that it has by then."""
        for task in self._open:
            task.cancel()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tls: ssl.SSLContext
    ) -> None:
        if self.manner == "slow handshake":
            await self.drip(writer, itertools.chain(SERVER_HELLO, itertools.repeat(b"\0")))
        await writer.start_tls(tls)
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests += 1
            asked = Asked(head.split()[1], writer, self.requests)
            await MANNERS.get(self.manner, behave)(self, asked)
            if asked.is_watch:
                return

    # -- what manners are made of

    async def send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if writer.transport.is_closing():
            raise ConnectionError("the client has left")
        self.sent += len(data)
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0)  # a drain that waits for nothing gives nobody a turn

    async def answer(self, asked: Asked, body: bytes, status: str = "200 OK", *fields: str) -> None:
        head = "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", *fields, "", ""])
        await self.send(asked.writer, head.encode() + body)

    async def begin(self, asked: Asked, *fields: str) -> None:
        """An answer that ends with its connection."""
        await self.send(asked.writer, "\r\n".join(["HTTP/1.1 200 OK", *fields, "", ""]).encode())

    async def repeat(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """As fast as it is taken."""
        block = data * max(1, 65536 // len(data))
        while True:
            await self.send(writer, block)

    async def drip(self, writer: asyncio.StreamWriter, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            await self.send(writer, piece)
            await asyncio.sleep(self.byte_s)


async def behave(box: HostileRedbox, asked: Asked) -> None:
    """As a red-box without jobs."""
    path = asked.path.partition("?")[0]
    if asked.is_watch:
        await box.begin(asked)
        while True:
            await box.send(asked.writer, BOOKMARK)
            await asyncio.sleep(BOOKMARK_S)
    elif path in {"/v1/jobs", "/v1/partitions"}:
        await box.answer(asked, EMPTY_LIST)
    elif path == "/v1/cluster":
        about = {"name": "h", "workloadManager": "none", "version": "0", "redboxVersion": "0"}
        await box.answer(asked, json.dumps({**about, "accounting": False}).encode())
    elif path == "/v1/whoami":
        await box.answer(asked, json.dumps({"identity": "i", "owner": OWNER, "roles": ["operator"]}).encode())
    else:
        problem = {"type": f"{PROBLEMS}not-found", "title": "No", "status": 404, "detail": "no such job"}
        await box.answer(asked, json.dumps(problem).encode(), "404 Not Found")


def sends(body: bytes, status: str = "200 OK", *fields: str) -> Manner:
    """Answers everything with this."""

    async def manner(box: HostileRedbox, asked: Asked) -> None:
        await box.answer(asked, body, status, *fields)

    return manner


def floods(data: bytes, *fields: str) -> Manner:
    """Answers everything with this, without an end."""

    async def manner(box: HostileRedbox, asked: Asked) -> None:
        await box.begin(asked, *fields)
        await box.repeat(asked.writer, data)

    return manner


def says(first: bytes, then: bytes) -> Manner:
    """Answers everything with these bytes, the second ones without an end."""

    async def manner(box: HostileRedbox, asked: Asked) -> None:
        await box.send(asked.writer, first)
        await box.repeat(asked.writer, then)

    return manner


def floods_watches(data: bytes, *fields: str) -> Manner:
    """Behaves, until it is watched."""

    async def manner(box: HostileRedbox, asked: Asked) -> None:
        await (floods(data, *fields) if asked.is_watch else behave)(box, asked)

    return manner


async def byte_by_byte(box: HostileRedbox, asked: Asked) -> None:
    if not asked.is_watch:
        await behave(box, asked)
        return
    await box.begin(asked)
    await box.drip(asked.writer, itertools.repeat(b" "))


async def half_a_mebibyte(box: HostileRedbox, asked: Asked) -> None:
    """The begin of an answer whose end does not come."""
    await box.begin(asked)
    await box.send(asked.writer, b'{"items":[{"name":"' + b"x" * (MIB // 2))
    await asyncio.Event().wait()


async def head_byte_by_byte(box: HostileRedbox, asked: Asked) -> None:
    await box.drip(asked.writer, (bytes([byte]) for byte in itertools.cycle(b"HTTP/1.1 200 OK\r\nx: ")))


async def resets(_: HostileRedbox, asked: Asked) -> None:
    asked.writer.transport.abort()


async def alternates(box: HostileRedbox, asked: Asked) -> None:
    """A list and an event that are right, and then nonsense."""
    if asked.is_watch:
        await box.begin(asked)
        await box.send(asked.writer, BOOKMARK + b"nonsense\n")
    else:
        await behave(box, asked)


async def too_old(box: HostileRedbox, asked: Asked) -> None:
    if not asked.is_watch:
        await behave(box, asked)
        return
    problem = {"type": f"{PROBLEMS}too-old", "title": "Too old", "status": 410, "detail": "list again"}
    await box.answer(asked, json.dumps(problem).encode(), "410 Gone")


async def endless_pages(box: HostileRedbox, asked: Asked) -> None:
    row = {"key": "k", "attempt": 1, "owner": OWNER, "user": "u", "phase": "Running"}
    page = {"items": [row] * 100, "revision": "e.1", "next": str(asked.number)}
    await box.answer(asked, json.dumps(page).encode())


async def floods_rows(box: HostileRedbox, asked: Asked) -> None:
    jobs = asked.path.startswith("/v1/jobs?")
    await (floods_watches(b"".join(box.rows)) if jobs and box.rows else behave)(box, asked)


async def redirects(box: HostileRedbox, asked: Asked) -> None:
    await box.answer(asked, b"", "302 Found", f"location: {box.endpoint}/v1/jobs")


NOTHING = {"nodes": 0, "cpus": 0, "memMb": 0}
PARTITION = {"name": "p", "state": "UP", "total": NOTHING, "free": NOTHING}
PARTITION_EVENT = {"type": "partition", "revision": "e.1", "partition": PARTITION}
MANNERS: dict[str, Manner] = {
    "endless body": floods(b"[0,0],"),
    "byte by byte": byte_by_byte,
    "half a mebibyte": half_a_mebibyte,
    "head byte by byte": head_byte_by_byte,
    "bookmarks": floods_watches(BOOKMARK),
    "bookmarks in chunks of a byte": floods_watches(
        b"".join(b"1\r\n%c\r\n" % byte for byte in BOOKMARK), "transfer-encoding: chunked"
    ),
    "empty lines": floods_watches(b"\n"),
    "partitions": floods_watches(json.dumps(PARTITION_EVENT).encode() + b"\n"),
    "rows": floods_rows,
    "690,000 items": sends(b'{"revision":"e.1","items":[' + b"{}," * 689_999 + b"{}]}"),
    "700 items that are none": sends(b'{"revision":"e.1","items":[' + b"{}," * 699 + b"{}]}"),
    "200,000 values that are none": sends(
        b'{"revision":"e.1","items":[{"nodes":[' + b"0," * 199_999 + b"0]}]}"
    ),
    "lists in lists": sends(b'{"revision":"e.1","items":' + b"[" * 8_000),
    "endless pages": endless_pages,
    "number of a million digits": sends(b'{"revision":"e.1","items":[],"x":' + b"1" * MIB + b"}"),
    "revision of a mebibyte": sends(b'{"items":[],"revision":"' + b"e" * MIB + b'"}'),
    "revision that is a number": sends(b'{"items":[],"revision":7}'),
    "too old": too_old,
    "resets": resets,
    "errors": sends(b"<html>", "500 Internal Server Error"),
    "alternates": alternates,
    "redirects": redirects,
    "gzip": sends(gzip.compress(b"[" * (64 * MIB)), "200 OK", "content-encoding: gzip"),
    "endless trailers": says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n"),
    "endless headers": says(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
    "endless header": says(b"HTTP/1.1 200 OK\r\nx: ", b"x"),
    "slow handshake": behave,
}
