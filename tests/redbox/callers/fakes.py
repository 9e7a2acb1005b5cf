"""An HTTPS server with a real certificate and answers that a test chooses; a user database."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from redbox.callers.unix_accounts import UnixAccount
from tests.redbox.callers.factories import ec_key

MEMBERS, STAFF = 500, 501
DATE = "Sat, 01 Nov 2025 12:00:00 GMT"


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Request], tuple[int, bytes]]


@dataclass
class ApiServerDouble:
    """Answers as `answer` says; `silent` makes it accept and say nothing."""

    answer: Answer
    url: str = ""
    silent: bool = False
    requests: list[Request] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                if self.silent:
                    await reader.read()
                    break
                status, body = self.answer(request)
                head = f"HTTP/1.1 {status} X\r\ndate: {DATE}\r\ncontent-length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Request(method, path, headers, body)


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that is its own CA, and its key."""
    key, now = ec_key(100), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "api server of the tests")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = directory / "ca.crt", directory / "ca.key"
    certificate_file.write_bytes(certificate.public_bytes(Encoding.PEM))
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate_file, key_file


@asynccontextmanager
async def https_server(directory: Path, answer: Answer) -> AsyncIterator[tuple[ApiServerDouble, Path]]:
    """Serve until left; gives the server and the file of its CA."""
    certificate_file, key_file = write_certificate(directory)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate_file, key_file)
    double = ApiServerDouble(answer)
    listener = await asyncio.start_server(double.serve, "127.0.0.1", 0, ssl=context)
    double.url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield double, certificate_file
    finally:
        listener.close()


@dataclass
class Accounts:
    """A user database."""

    accounts: dict[str, UnixAccount] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=lambda: {"redbox-users": MEMBERS, "staff": STAFF})

    def account(self, name: str) -> UnixAccount | None:
        return self.accounts.get(name)

    def account_of(self, uid: int) -> UnixAccount | None:
        return next((account for account in self.accounts.values() if account.uid == uid), None)

    def group(self, name: str) -> int | None:
        return self.groups.get(name)
