"""One HTTP exchange on a connection of its own.

slurmrestd 26.05 sends two responses for a request that fails, the first one with `Connection: Close`. The
parser of aiohttp refuses both then, and Slurm's error would be lost. So the first response is read here, by
its Content-Length, which slurmrestd always sends.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from redbox_api.limits.answer_limits import AnswerLimits

LONGEST_HEAD = 64 * 1024
STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?")
HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*?)[ \t]*")
DIGITS = re.compile(rb"[0-9]{1,12}")
UNSAFE = re.compile(r"[^\x21-\x7e]")


class BadExchange(ValueError):
    """The request cannot be sent, or what came is no response."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; `body` is JSON."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""

    def encoded(self, host: str) -> bytes:
        lines = [f"{self.method} {self.path} HTTP/1.1", f"host: {host}", "connection: close"]
        given = {**self.headers, "content-length": str(len(self.body))}
        for name, value in given.items():
            if UNSAFE.search(value):
                raise BadExchange(f"the header {name} cannot be sent")
            lines.append(f"{name}: {value}")
        return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + self.body


async def exchange(
    endpoint: str,
    request: HttpRequest,
    tls: ssl.SSLContext | None,
    limits: AnswerLimits,
    server_name: str | None = None,
) -> tuple[int, bytes]:
    """Status and body; OSError, EOFError or BadExchange where there is no whole response.

    The caller sets the deadline. `server_name`: in the certificate, if it is not the endpoint's.
    """
    url = urlsplit(endpoint)
    encrypts = url.scheme == "https"
    reader, writer = await asyncio.open_connection(
        url.hostname,
        url.port or (443 if encrypts else 80),
        ssl=(tls or True) if encrypts else None,
        server_hostname=server_name if encrypts else None,
        limit=LONGEST_HEAD,
    )
    try:
        writer.write(request.encoded(url.netloc))
        await writer.drain()
        status, length = await _head(reader)
        limits.check_bytes(length)
        return status, await reader.readexactly(length)
    finally:
        writer.transport.abort()


async def _head(reader: asyncio.StreamReader) -> tuple[int, int]:
    """Status and length of the body."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise BadExchange("the headers of the answer are too long") from error
    first, *rest = head[:-4].split(b"\r\n")
    status = STATUS_LINE.fullmatch(first)
    headers = [HEADER.fullmatch(line) for line in rest]
    if not status or None in headers:
        raise BadExchange("the answer is not HTTP")
    found = [(header[1].lower(), header[2]) for header in headers if header]
    lengths = {value for name, value in found if name == b"content-length"} or {b"0"}
    is_encoded = any(name == b"transfer-encoding" for name, _ in found)
    (length, *others) = lengths
    if is_encoded or others or not DIGITS.fullmatch(length):
        raise BadExchange("the answer does not say its length")
    return int(status[1]), int(length)
