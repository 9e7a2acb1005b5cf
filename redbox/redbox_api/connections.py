"""The connections to one red-box, which all who speak to it through one client share."""

from __future__ import annotations

import ssl

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

from redbox_api.authorities import pem_of
from redbox_api.errors import Unreachable

IDLE_S = 10.0
"""An idle one is let go long before red-box does it (30 s), since a request on one that is just being ended
gets no answer."""
READ_AHEAD = 64 * 1024
"""What is held of a log whose reader is slow, of which there may be a thousand; more made none faster."""
NO_LIMIT = 0
"""A thousand followed logs are a thousand connections: red-box limits them, and says so."""


class ClientConnections:
    """Opened when they are needed first, in the event loop that needs them."""

    def __init__(self, *, socket: str | None, ca_bundle: str | bytes | None) -> None:
        self._socket = socket
        self._tls = ssl.create_default_context(cadata=pem_of(ca_bundle or ""))
        self._session: ClientSession | None = None
        self._closed = False

    def session(self) -> ClientSession:
        """What requests are sent by."""
        if self._closed:
            raise Unreachable("this client is closed")
        if self._session is None:
            self._session = plain_session(self._connector())
        return self._session

    async def close(self) -> None:
        """End them all, for good."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def _connector(self) -> BaseConnector:
        if self._socket is not None:
            return UnixConnector(self._socket, limit=NO_LIMIT, keepalive_timeout=IDLE_S)
        return TCPConnector(ssl=self._tls, limit=NO_LIMIT, keepalive_timeout=IDLE_S)


def plain_session(connector: BaseConnector) -> ClientSession:
    """One that does what it is asked and no more; deadlines are for each request to give."""
    return ClientSession(
        connector=connector,
        timeout=ClientTimeout(total=None),
        cookie_jar=DummyCookieJar(),
        headers={"accept-encoding": "identity"},
        auto_decompress=False,
        read_bufsize=READ_AHEAD,
        trust_env=False,  # neither a proxy nor a netrc of whoever started the program
    )


def explain(error: Exception) -> str:
    """Why there is no answer: the same words for the same fault, so nothing of aiohttp's own objects."""
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
