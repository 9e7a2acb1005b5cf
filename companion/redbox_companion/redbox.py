"""Talking to red-box: one connection, one caller, blocking, standard library only.

A request either gets an `Answer`, whatever its status, or raises `NoAnswer`; what to do then is for the
caller to say. The token is read anew for each request, because the kubelet rotates it.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redbox_companion.settings import Settings

ANSWER_S = 90.0  # a submit may take as long as Slurm does
QUIET_S = 400.0  # red-box ends an answer that has been silent for 300 s, so that we ask again
KEEP_ALIVE = (
    ("TCP_KEEPIDLE", 15),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
)  # a dead peer is noticed in 30 s
PROBLEM_BYTES = 65536


class NoAnswer(Exception):
    """No answer, or half of one: what red-box did is unknown."""


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    body: dict[str, Any]
    retry_after: float | None = None

    @property
    def explanation(self) -> str:
        """What red-box says of a refusal, for a person."""
        title, detail = self.body.get("title", f"HTTP {self.status}"), self.body.get("detail", "")
        return f"{title}: {detail}" if detail else str(title)


class Redbox:
    """One red-box, asked as this pod's service account."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is connected or read yet."""
        self._settings = settings
        self._address = urlsplit(settings.endpoint)

    def ask(self, method: str, path: str, query: Mapping[str, Any], body: bytes | None = None) -> Answer:
        """Send one request and read the whole answer."""
        with self._open(method, path, query, body, timeout=ANSWER_S) as response:
            return whole(response)

    @contextmanager
    def stream(self, path: str, query: Mapping[str, Any]) -> Iterator[http.client.HTTPResponse]:
        """An answer that is read piece by piece."""
        with self._open("GET", path, query, None, timeout=QUIET_S) as response:
            yield response

    @contextmanager
    def _open(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes | None, *, timeout: float
    ) -> Iterator[http.client.HTTPResponse]:
        connection: http.client.HTTPSConnection | None = None
        try:
            connection = self._connection(timeout)
            headers = {"Authorization": f"Bearer {self._token()}", "Connection": "close"}
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.connect()
            _keep_alive(connection.sock)
            connection.request(method, f"{path}?{urlencode(query)}", body, headers)
            yield connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            msg = f"{self._settings.endpoint}: {str(error) or type(error).__name__}"
            raise NoAnswer(msg) from error
        finally:
            if connection is not None:
                connection.close()

    def _connection(self, timeout: float) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self._settings.ca_file)
        return http.client.HTTPSConnection(
            self._address.hostname or "", self._address.port or 443, timeout=timeout, context=context
        )

    def _token(self) -> str:
        return self._settings.token_file.read_text(encoding="ascii").strip()


def _keep_alive(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE:
        connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def whole(response: http.client.HTTPResponse) -> Answer:
    """Read an answer to its end; a body that is no JSON becomes its own explanation."""
    raw = response.read(PROBLEM_BYTES if response.status >= http.HTTPStatus.BAD_REQUEST else None)
    after = response.getheader("Retry-After", "")
    try:
        body = json.loads(raw) if raw else {}
    except ValueError:
        body = {"detail": raw[:500].decode("utf-8", "replace")}
    return Answer(
        status=response.status,
        body=body if isinstance(body, dict) else {},
        retry_after=float(after) if after.isdecimal() else None,
    )
