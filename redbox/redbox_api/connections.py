"""The connections to one red-box, shared by all users of one client."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from aiohttp import (
    BaseConnector,
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    SocketTimeoutError,
    TCPConnector,
    UnixConnector,
)
from yarl import URL

from redbox_api.authorities import pem_of
from redbox_api.errors import Unreachable

IDLE_S = 10.0
"""An idle connection is closed long before red-box closes it (30 s): a request on a connection that is just
being closed gets no answer."""
READ_AHEAD = 64 * 1024
"""Buffered of a log whose reader is slow; there may be a thousand. Larger buffers were not faster."""
NO_LIMIT = 0
"""A thousand followed logs are a thousand connections: red-box limits them itself."""


class ClientConnections:
    """Opened on first use, in the event loop that uses them."""

    def __init__(self, *, socket: str | None, ca_bundle: str | bytes | None) -> None:
        self._socket = socket
        self._tls = ssl.create_default_context(cadata=pem_of(ca_bundle or ""))
        self._session: ClientSession | None = None
        self._closed = False

    def session(self) -> ClientSession:
        if self._closed:
            raise Unreachable("this client is closed")
        if self._session is None:
            self._session = plain_session(self._connector())
        return self._session

    async def close(self) -> None:
        """Close all; the object cannot be used again."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def _connector(self) -> BaseConnector:
        if self._socket is not None:
            return UnixConnector(self._socket, limit=NO_LIMIT, keepalive_timeout=IDLE_S)
        return TCPConnector(ssl=self._tls, limit=NO_LIMIT, keepalive_timeout=IDLE_S)


def plain_session(connector: BaseConnector) -> ClientSession:
    """A session without cookies, proxies or decompression; each request sets its own deadlines."""
    return ClientSession(
        connector=connector,
        timeout=ClientTimeout(total=None),
        cookie_jar=DummyCookieJar(),
        headers={"accept-encoding": "identity"},
        auto_decompress=False,
        read_bufsize=READ_AHEAD,
        trust_env=False,  # neither proxy variables nor a netrc file
    )


def explain(error: Exception) -> str:
    """Why there is no answer: the same words for the same fault, without addresses of aiohttp's objects."""
    match error:
        case ConnectionTimeoutError():
            return "no connection in time"
        case SocketTimeoutError():
            return "it was silent for too long"
        case ClientConnectorCertificateError():
            return str(error.certificate_error)
        case ClientConnectorError():
            return str(error.os_error)
        case _:
            return str(error) or type(error).__name__


def url_of(endpoint: str, path: str, query: Mapping[str, Any]) -> URL:
    """The request's URL, with the path unchanged: `..` is not resolved."""
    try:
        base = URL(endpoint).with_user(None)  # or it would replace the token
    except ValueError as error:
        raise Unreachable(f"{endpoint} is not a valid address: {error}") from error
    return base.with_path(base.raw_path.rstrip("/") + quote(path, safe="/%"), encoded=True).with_query(query)
