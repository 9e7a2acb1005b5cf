"""HTTP/1.1 over TLS, one request after another on a connection.

`http.client` parses headers with the package email, which takes 2 MiB of each companion and a tenth of its
start.
"""

from __future__ import annotations

import select
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

LONGEST_LINE = 65536
MOST_HEADERS = 100
MOST_INTERIM = 10
HTTPS_PORT = 443
CONTINUE, SWITCHING_PROTOCOLS, OK, NO_CONTENT, NOT_MODIFIED = 100, 101, 200, 204, 304
UNTIL_CLOSED = -1
HEX_DIGITS = b"0123456789abcdefABCDEF"


class MalformedResponse(Exception):
    """A response that is not of HTTP/1.1, or ended too early."""


class HttpConnection:
    """A connection for one request at a time."""

    def __init__(self, host: str, port: int, trust: ssl.SSLContext, timeout_s: float) -> None:
        """Connect; raises OSError."""
        name = f"[{host}]" if ":" in host else host
        self._host = name if port == HTTPS_PORT else f"{name}:{port}"
        self._response: HttpResponse | None = None
        plain = socket.create_connection((host, port), timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket = trust.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self.socket.close()

    @property
    def is_free(self) -> bool:
        """Whether the last response was read to its end, and the server takes another request."""
        return self._response is not None and self._response.leaves_connection_open

    @property
    def is_quiet(self) -> bool:
        """Whether it is open, and nothing came behind the response: that would pass for the next one."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return not self.socket.pending() and not poll.poll(0)

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """The response, up to its body; the one before has to be read to its end."""
        sent = {"Host": self._host, "Accept-Encoding": "identity", **headers}
        if body is not None:
            sent["Content-Length"] = str(len(body))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
        if self._response is not None:
            self._response.close()
        self.socket.sendall("\r\n".join(lines).encode("ascii") + (body or b""))
        self._response = HttpResponse(self.socket)
        return self._response


class HttpResponse:
    """Status and headers, and a body that is read piece by piece."""

    def __init__(self, connection: socket.socket) -> None:
        self._stream = connection.makefile("rb")
        self.status = self._read_status()
        self._headers = self._read_headers()
        interim = 0
        while CONTINUE <= self.status < OK and self.status != SWITCHING_PROTOCOLS:
            interim += 1
            if interim > MOST_INTERIM:
                raise MalformedResponse(f"there are more than {MOST_INTERIM} interim responses")
            self.status = self._read_status()
            self._headers = self._read_headers()
        self._is_chunked = self.header("Transfer-Encoding").lower() == "chunked"
        self._left = 0 if self._is_chunked else self._length()
        """Bytes of the body, or of the current chunk."""
        self._has_ended = self._left == 0 and not self._is_chunked
        self._is_after_chunk = False

    def close(self) -> None:
        self._stream.close()

    @property
    def leaves_connection_open(self) -> bool:
        is_delimited = self._left != UNTIL_CLOSED and self.status != SWITCHING_PROTOCOLS
        return is_delimited and self._has_ended and self.header("Connection").lower() != "close"

    def header(self, name: str) -> str:
        """Empty if it is missing."""
        return self._headers.get(name.lower(), "")

    def read(self, size: int) -> bytes:
        """So many bytes; fewer at the end only."""
        whole = bytearray()  # a list of many small pieces would take twenty times their bytes
        while len(whole) < size and (piece := self.read_some(size - len(whole))):
            whole += piece
        return bytes(whole)

    def read_some(self, size: int) -> bytes:
        """The bytes that are there, at least one; none at the end only."""
        if self._is_chunked and not self._left and not self._has_ended:
            self._begin_chunk()
        if self._has_ended:
            return b""
        piece = self._stream.read1(size if self._left == UNTIL_CLOSED else min(size, self._left))
        if self._left == UNTIL_CLOSED:
            self._has_ended = not piece
            return piece
        if not piece:
            raise MalformedResponse("the response ended too early")
        self._left -= len(piece)
        self._is_after_chunk = self._is_chunked and not self._left
        self._has_ended = not self._is_chunked and not self._left
        return piece

    def peek(self) -> bytes:
        """Bytes that came with the headers, as of another protocol."""
        return bytes(self._stream.peek())

    def _begin_chunk(self) -> None:
        # Not as a line: a bare LF may be what is left of too long a chunk.
        if self._is_after_chunk and self._stream.read(2) != b"\r\n":
            raise MalformedResponse("the response ended too early, or a chunk is not as long as it says")
        size = self._read_line().partition(b";")[0].strip()
        if not size or size.strip(HEX_DIGITS):
            raise MalformedResponse(f"the response has a chunk of {size[:20]!r} bytes")
        self._left = int(size, 16)
        if not self._left:
            self._has_ended = True
            self._read_headers()  # after the last chunk: nothing of ours

    def _length(self) -> int:
        if self.status in {SWITCHING_PROTOCOLS, NO_CONTENT, NOT_MODIFIED}:
            return 0
        length = self.header("Content-Length")
        if not length:
            return UNTIL_CLOSED
        if not (length.isascii() and length.isdecimal()):
            raise MalformedResponse(f"the response has a length of {length[:20]!r} bytes")
        return int(length)

    def _read_status(self) -> int:
        line = self._read_line()
        version, _, rest = line.partition(b" ")
        status = rest.partition(b" ")[0]
        is_status = len(status) == 3 and status.isdigit() and status >= b"100"  # noqa: PLR2004
        if not version.startswith(b"HTTP/1.") or not is_status:
            raise MalformedResponse(f"the response is not of HTTP/1.1: {line[:40]!r}")
        return int(status)

    def _read_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for _ in range(MOST_HEADERS):
            line = self._read_line()
            if not line:
                return headers
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon or name.split() != [name]:
                raise MalformedResponse(f"the response has a malformed header: {line[:40]!r}")
            value, before = value.strip(" \t"), headers.get(name.lower())
            headers[name.lower()] = value if before is None else f"{before}, {value}"
        raise MalformedResponse(f"the response has more than {MOST_HEADERS} headers")

    def _read_line(self) -> bytes:
        """Without its end."""
        line = self._stream.readline(LONGEST_LINE + 1)
        if not line.endswith(b"\n"):
            raise MalformedResponse("the response ended too early, or has a line that is too long")
        line = line[:-1].removesuffix(b"\r")
        if b"\r" in line:
            raise MalformedResponse(f"the response has a line with a bare CR: {line[:40]!r}")
        return line
