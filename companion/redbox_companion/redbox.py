"""Talking to red-box: one connection a request, one caller, blocking, standard library only.

A request either gets an answer of red-box, whatever its status, or raises `NoAnswer`; what to do then is for
the caller to say. What a proxy or a stranger at that address answers is no answer: red-box's own refusals
carry a problem type of its own, and its answers about a job say the job's phase. The token is read anew for
each request, because the kubelet rotates it.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from redbox_companion.settings import BadSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from redbox_companion.settings import Settings

PROBLEMS = "https://redbox.dev/problems/"
CONNECT_S = 10.0
ANSWER_S = 90.0  # a submit may take as long as Slurm does
QUIET_S = 400.0  # red-box ends an answer that has been silent for 300 s, so that we ask again
LONGEST_PAUSE_S = 60.0  # however long red-box would have us wait
MOST_BYTES = 8 << 20  # of an answer that is held in memory: an array of 50,000 tasks
KEEP_ALIVE = (
    ("TCP_KEEPIDLE", 15),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
)  # a dead peer is noticed in 30 s


class NoAnswer(Exception):
    """No answer, half of one, or a stranger's: what red-box did is unknown, and asking again is right."""

    def __init__(self, why: str, *, retry_after: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class Answer(NamedTuple):
    """A whole answer: a job, or a problem."""

    status: int
    body: dict[str, Any]
    retry_after: float = 0.0

    @property
    def explanation(self) -> str:
        """What red-box says of a refusal, for a person."""
        title, detail = self.body.get("title", f"HTTP {self.status}"), self.body.get("detail", "")
        return f"{title}: {detail}" if detail else str(title)

    @property
    def may_change(self) -> bool:
        """Whether asking again can help."""
        return bool(self.body.get("retry", self.status >= HTTPStatus.INTERNAL_SERVER_ERROR))

    @property
    def is_of_redbox(self) -> bool:
        """Whether this is what red-box says of a job, and not something that else listens there."""
        if self.status < HTTPStatus.MULTIPLE_CHOICES:
            return isinstance(self.body.get("phase"), str)
        return str(self.body.get("type", "")).startswith(PROBLEMS)


class Stream:
    """An answer that is read piece by piece."""

    def __init__(self, endpoint: str, response: http.client.HTTPResponse) -> None:
        self._endpoint = endpoint
        self._response = response
        self.status = response.status

    def header(self, name: str) -> str:
        """Empty where there is none."""
        return self._response.getheader(name, "")

    def read(self, size: int) -> bytes:
        """As much as asked for; less at the end only."""
        with _reaching(self._endpoint):
            return self._response.read(size)

    def read_some(self, size: int) -> bytes:
        """What is there, at least a byte; nothing at the end only."""
        with _reaching(self._endpoint):
            return self._response.read1(size)

    def whole(self) -> Answer:
        """All of it."""
        raw = self.read(MOST_BYTES)
        after = self.header("Retry-After")
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        pause = min(float(after), LONGEST_PAUSE_S) if after.isascii() and after.isdecimal() else 0.0
        answer = Answer(self.status, body if isinstance(body, dict) else {}, pause)
        if not answer.is_of_redbox:
            raise self.is_strange()
        return answer

    def is_strange(self) -> NoAnswer:
        """The error that says so."""
        return NoAnswer(f"{self._endpoint}: HTTP {self.status}, with something that is no answer of red-box")


class Redbox:
    """One red-box, asked as this pod's service account."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is connected yet."""
        self._settings = settings
        self._address = urlsplit(settings.endpoint.rstrip("/"))
        self._trust = _trust(settings.ca_file)

    def ask(self, method: str, path: str, query: Mapping[str, Any], body: bytes | None = None) -> Answer:
        """Send one request and read the whole answer."""
        with self._open(method, path, query, body, timeout=ANSWER_S) as stream:
            return stream.whole()

    @contextmanager
    def stream(self, path: str, query: Mapping[str, Any]) -> Iterator[Stream]:
        """An answer that is read piece by piece."""
        with self._open("GET", path, query, None, timeout=QUIET_S) as stream:
            yield stream

    @contextmanager
    def _open(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes | None, *, timeout: float
    ) -> Iterator[Stream]:
        with _reaching(self._settings.endpoint):
            connection = http.client.HTTPSConnection(
                self._address.hostname or "",
                self._address.port or 443,
                timeout=CONNECT_S,
                context=self._trust,
            )
        try:
            with _reaching(self._settings.endpoint):
                headers = {"Authorization": f"Bearer {self._token()}", "Connection": "close"}
                if body is not None:
                    headers["Content-Type"] = "application/json"
                connection.connect()
                _keep_alive(connection.sock)
                connection.sock.settimeout(timeout)
                connection.request(
                    method, f"{self._address.path}{path}?{urlencode(query, doseq=True)}", body, headers
                )
                response = connection.getresponse()
            yield Stream(self._settings.endpoint, response)
        finally:
            connection.close()

    def _token(self) -> str:
        token = self._settings.token_file.read_text(encoding="ascii", errors="replace").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise OSError(f"there is no token yet in {self._settings.token_file}")  # never its content
        return token


@contextmanager
def _reaching(endpoint: str) -> Iterator[None]:
    """Whatever goes wrong between us and red-box is `NoAnswer`."""
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswer(f"{endpoint}: {str(error) or type(error).__name__}") from error


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    """Red-box's own authority, or where none is given the system's."""
    try:
        if ca_file is None or not ca_file.stat().st_size:
            return ssl.create_default_context()
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise BadSettings(
            f"the certificates in REDBOX_CA_FILE, {ca_file}, cannot be read: {error}"
        ) from error


def _keep_alive(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE:
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
