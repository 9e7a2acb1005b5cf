"""Requests to red-box: one caller, blocking, standard library only.

A request either gets a response of red-box, whatever its status, or raises `RedboxUnreachable`; the caller
decides what to do then. Responses of a proxy or of another server at that address do not count: refusals of
red-box have a problem type of its own, and its responses about a job contain the job's phase. The token is
read again for each request, because the kubelet rotates it.

The next request within some seconds uses the same connection: to open one costs both sides more than to ask.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from urllib.parse import quote, urlencode, urlsplit

from redbox_companion.connection.http_connection import HttpConnection, HttpResponse, MalformedResponse
from redbox_companion.settings import PodMisconfigured
from redbox_shared import pod_contract
from redbox_shared.socket_options import KEEP_ALIVE
from redbox_shared.wire import PROBLEMS, STREAM_HEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from redbox_companion.settings import CompanionSettings

CONNECT_S = 10.0
REUSED_S = 10.0  # red-box closes one that was idle for 30 s
RESPONSE_S = 90.0  # a submit may take as long as Slurm does
RENEW_S = 15.0
SILENT_S = 400.0  # red-box ends a response that was silent for 300 s, so that we repeat the request
LONGEST_RETRY_AFTER_S = 60.0
MOST_BYTES = 8 << 20  # of a response that is held in memory: an array of 40,000 tasks takes half
WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455: proves that the server read the key


class RedboxUnreachable(Exception):
    """No response, half of one, or another server's: what red-box did is unknown; repeat the request."""

    def __init__(self, why: str, *, retry_after: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class RedboxAnswer:
    """A whole response: a job, or a problem."""

    def __init__(self, status: int, body: dict[str, Any], retry_after: float = 0.0) -> None:
        self.status = status
        self.body = body
        self.retry_after = retry_after

    @property
    def explanation(self) -> str:
        title, detail = self.body.get("title", f"HTTP {self.status}"), self.body.get("detail", "")
        return f"{title}: {detail}" if detail else str(title)

    @property
    def may_change(self) -> bool:
        """Whether the same request may succeed later."""
        return bool(self.body.get("retry", self.status >= HTTPStatus.INTERNAL_SERVER_ERROR))

    @property
    def is_of_redbox(self) -> bool:
        """Whether it came from red-box, and not from another server at its address."""
        if self.status < HTTPStatus.MULTIPLE_CHOICES:
            return isinstance(self.body.get("phase"), str)
        return str(self.body.get("type", "")).startswith(PROBLEMS)


class UpgradeRefused(Exception):
    """Red-box answered a request for a WebSocket with a problem."""

    def __init__(self, answer: RedboxAnswer) -> None:
        super().__init__(answer.explanation)
        self.answer = answer


class UpgradedConnection:
    """A WebSocket after its handshake: the socket, and the bytes that came with the response."""

    def __init__(
        self,
        connection: HttpConnection,
        response: HttpResponse,
        token: Callable[[], str],
        renew: Callable[[], bool],
    ) -> None:
        """`renew` has red-box go on by the token of now."""
        self.token = token
        self.renew = renew
        self.socket: ssl.SSLSocket = connection.socket
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(0.0)
        with suppress(BlockingIOError, ssl.SSLWantReadError):
            self.received = response.peek()
            return
        self.received = b""


class AnswerStream:
    """A response that is read piece by piece."""

    def __init__(self, endpoint: str, response: HttpResponse) -> None:
        self._endpoint = endpoint
        self._response = response
        self.status = response.status

    def header(self, name: str) -> str:
        """Empty if it is missing."""
        return self._response.header(name)

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes; fewer at the end only."""
        with _reaching(self._endpoint):
            return self._response.read(size)

    def read_some(self, size: int) -> bytes:
        """The bytes that are there, at least one; none at the end only."""
        with _reaching(self._endpoint):
            return self._response.read_some(size)

    def whole(self) -> RedboxAnswer:
        raw = self.read(MOST_BYTES)
        after = self.header("Retry-After")
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        pause = min(float(after), LONGEST_RETRY_AFTER_S) if after.isascii() and after.isdecimal() else 0.0
        answer = RedboxAnswer(self.status, body if isinstance(body, dict) else {}, pause)
        if not answer.is_of_redbox:
            raise self.foreign()
        return answer

    def foreign(self) -> RedboxUnreachable:
        """The error for a response that did not come from red-box."""
        return RedboxUnreachable(
            f"{self._endpoint}: HTTP {self.status}: the response did not come from red-box"
        )


class BlockingClient:
    """One red-box, and this pod's service account as the caller."""

    def __init__(self, settings: CompanionSettings) -> None:
        self._settings = settings
        self._address = urlsplit(settings.endpoint.rstrip("/"))
        self._trust = _trust(settings.ca_file)
        self._kept: list[tuple[HttpConnection, float]] = []  # without a response under way

    def request(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes | None = None
    ) -> RedboxAnswer:
        with self.stream(path, query, method, body, silent_s=RESPONSE_S) as stream:
            return stream.whole()

    @contextmanager
    def stream(
        self,
        path: str,
        query: Mapping[str, Any],
        method: str = "GET",
        body: bytes | None = None,
        *,
        silent_s: float = SILENT_S,
    ) -> Iterator[AnswerStream]:
        """A response that is read piece by piece."""
        endpoint = self._settings.endpoint
        with ExitStack() as opened:
            with _reaching(endpoint):
                headers = {"Authorization": f"Bearer {self._token()}"}
                if body is not None:
                    headers["Content-Type"] = "application/json"
                target = self._url(path, query)
                connection, response = self._respond(
                    opened, silent_s, lambda connection: connection.request(method, target, headers, body)
                )
            yield AnswerStream(endpoint, response)
            if connection.is_free:
                opened.pop_all()
                self._keep(connection)

    def _respond(
        self, opened: ExitStack, silent_s: float, request: Callable[[HttpConnection], HttpResponse]
    ) -> tuple[HttpConnection, HttpResponse]:
        """The connection that was used, and the response."""
        kept = self._take_kept()
        if kept is not None:
            opened.callback(kept.close)
            kept.socket.settimeout(silent_s)
            try:
                return kept, request(kept)
            except TimeoutError:
                raise
            except (OSError, MalformedResponse):  # closed meanwhile: each request may be repeated
                kept.close()
        connection = self._connection(opened, silent_s)
        return connection, request(connection)

    def _take_kept(self) -> HttpConnection | None:
        with suppress(IndexError):  # threads take turns
            connection, since = self._kept.pop()
            if time.monotonic() - since < REUSED_S and connection.is_quiet:
                return connection
            connection.close()
        return None

    def _keep(self, connection: HttpConnection) -> None:
        """For the next request; one is enough, since most have one thread."""
        if self._kept:
            connection.close()
        else:
            self._kept.append((connection, time.monotonic()))

    def upgrade(self, path: str, query: Mapping[str, Any], protocol: str) -> UpgradedConnection:
        """A WebSocket of this subprotocol; raises `UpgradeRefused` with red-box's own answer."""
        import base64  # noqa: PLC0415 - memory, for the jobs that need it
        import hashlib  # noqa: PLC0415

        endpoint, key = self._settings.endpoint, base64.b64encode(os.urandom(16)).decode()
        with ExitStack() as opened:
            with _reaching(endpoint):
                headers = {
                    "Authorization": f"Bearer {self._token()}",
                    "Connection": "Upgrade",
                    "Upgrade": "websocket",
                    "Sec-WebSocket-Version": "13",
                    "Sec-WebSocket-Key": key,
                    "Sec-WebSocket-Protocol": protocol,
                }
                connection = self._connection(opened, RESPONSE_S)
                response = connection.request("GET", self._url(path, query), headers)
            answer = AnswerStream(endpoint, response)
            if response.status != HTTPStatus.SWITCHING_PROTOCOLS:
                raise UpgradeRefused(answer.whole())
            proof = hashlib.sha1(f"{key}{WEBSOCKET}".encode(), usedforsecurity=False).digest()
            expected = (base64.b64encode(proof).decode(), protocol)
            if (answer.header("Sec-WebSocket-Accept"), answer.header("Sec-WebSocket-Protocol")) != expected:
                raise answer.foreign()
            renew = partial(self._renew, answer.header(STREAM_HEADER))
            with _reaching(endpoint):
                upgraded = UpgradedConnection(connection, response, self._token, renew)
            opened.pop_all()
            return upgraded

    def _renew(self, stream: str) -> bool:
        """Whether red-box goes on with the session or forward of this id by the token of now."""
        path = f"/v1/streams/{quote(stream, safe='')}/renew"
        try:
            with self.stream(path, {}, "POST", b"", silent_s=RENEW_S) as answer:
                return answer.status == HTTPStatus.NO_CONTENT
        except RedboxUnreachable:
            return False

    def _connection(self, opened: ExitStack, silent_s: float) -> HttpConnection:
        address = self._address
        connection = HttpConnection(address.hostname or "", address.port or 443, self._trust, CONNECT_S)
        opened.callback(connection.close)
        for option in KEEP_ALIVE:
            connection.socket.setsockopt(*option)
        connection.socket.settimeout(silent_s)
        return connection

    def _url(self, path: str, query: Mapping[str, Any]) -> str:
        return f"{self._address.path}{path}?{urlencode(query, doseq=True)}"

    def _token(self) -> str:
        token = self._settings.token_file.read_text(encoding="ascii", errors="replace").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise OSError(f"there is no token yet in {self._settings.token_file}")  # never its content
        return token


@contextmanager
def _reaching(endpoint: str) -> Iterator[None]:
    """Every failure between us and red-box becomes `RedboxUnreachable`."""
    try:
        yield
    except (OSError, MalformedResponse, ValueError) as error:
        raise RedboxUnreachable(f"{endpoint}: {str(error) or type(error).__name__}") from error


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    """Red-box's own authority; without a file, those of the system."""
    try:
        is_empty = ca_file is None or not ca_file.stat().st_size
        return ssl.create_default_context(cafile=None if is_empty else ca_file)
    except OSError as error:
        raise PodMisconfigured(
            f"the certificates in {pod_contract.CA_FILE_PATH}, {ca_file}, cannot be read: {error}"
        ) from error
