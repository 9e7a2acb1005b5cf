"""The connections to one red-box, shared by all users of one client."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from aiohttp import (
    AddrInfoType,
    BaseConnector,
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    ConnectionTimeoutError,
    DummyCookieJar,
    SocketTimeoutError,
    TCPConnector,
    UnixConnector,
    WSServerHandshakeError,
)
from yarl import URL

from redbox_api.bodies import whole
from redbox_api.errors import FOREIGN, Unreachable, refusal
from redbox_api.limits.answer_limits import AnswerLimits, OutOfBounds
from redbox_api.limits.metering import charged_http, charged_tls
from redbox_api.limits.time_share import TimeShare
from redbox_shared.socket_options import KEEP_ALIVE

IDLE_S = 10.0
"""An idle connection is closed long before red-box closes it (30 s): a request on a connection that is just
being closed gets no answer."""
READ_AHEAD = 64 * 1024
"""Buffered of a log whose reader is slow; there may be a thousand. Larger buffers were not faster."""
LONGEST_MESSAGE = 1024 * 1024
"""Of a WebSocket; red-box sends what it reads, in pieces that are much smaller."""
OF_REFUSALS = AnswerLimits(longest=256 * 1024, values=10_000, containers=1_000)
NO_LIMIT = 0
"""A thousand followed logs are a thousand connections: red-box limits them itself."""


class ClientConnections:
    """Opened on first use, in the event loop that uses them."""

    def __init__(
        self,
        *,
        path: str | None,
        ca_bundle: str | bytes | None,
        refuses: Callable[[str], str | None] | None = None,
        share: TimeShare | None = None,
    ) -> None:
        """`refuses` returns why there is to be no connection to an address, of those that a name has.

        TLS and HTTP are charged to `share`. Without one they are not: a log that somebody reads over these
        connections must not take the time of a feed.
        """
        self._path = path
        self._refuses = refuses
        self._tls = ssl.create_default_context(cadata=pem_of(ca_bundle or ""))
        self._share = share
        self._session: ClientSession | None = None
        self._upgrades: ClientSession | None = None
        self._closed = False

    def session(self) -> ClientSession:
        if self._closed:
            raise Unreachable("this client is closed")
        if self._session is None:
            self._session = plain_session(self._connector())
        return self._session

    async def open_websocket(
        self, url: URL, headers: Mapping[str, str], protocol: str, within: float
    ) -> ClientWebSocketResponse[bool]:
        """Opened with this subprotocol; raises what red-box refuses it with."""
        try:
            async with asyncio.timeout(within):
                opened = await self._upgrading().ws_connect(
                    url, headers=headers, protocols=(protocol,), max_msg_size=LONGEST_MESSAGE
                )
        except TimeoutError as error:
            raise Unreachable(f"{url.raw_path}: no answer within {within:g} s") from error
        except WSServerHandshakeError as error:
            raise Unreachable(f"{url.raw_path}: {FOREIGN}: it opens no WebSocket: {error.message}") from error
        except (ClientError, OutOfBounds) as error:
            raise Unreachable(f"{url.raw_path}: {explain(error)}") from error
        if opened.protocol != protocol:
            await opened.close()
            raise Unreachable(f"{url.raw_path}: {FOREIGN}: it does not speak {protocol}")
        return opened

    async def close(self) -> None:
        """Close all; the object cannot be used again."""
        self._closed = True
        for session in (self._upgrades, self._session):
            if session is not None:
                await session.close()

    def _upgrading(self) -> ClientSession:
        """Over the same connector: only here may aiohttp see to the status of an answer."""
        if self._upgrades is None:
            self._upgrades = plain_session(self.session().connector, _refuse_upgrade)
        return self._upgrades

    def _connector(self) -> BaseConnector:
        if self._path is not None:
            return UnixConnector(self._path, limit=NO_LIMIT, keepalive_timeout=IDLE_S)
        tls = charged_tls(self._tls, self._share) if self._share else self._tls
        connector = TCPConnector(
            ssl=tls, limit=NO_LIMIT, keepalive_timeout=IDLE_S, socket_factory=self._socket_to
        )
        if self._share:
            loop = asyncio.get_running_loop()
            connector._factory = partial(charged_http(self._share), loop=loop)  # noqa: SLF001 (no other way)
        return connector

    def _socket_to(self, address: AddrInfoType) -> socket.socket:
        """For the address that is connected to: one that a name has later is judged later."""
        if self._refuses is not None and (why := self._refuses(str(address[4][0]))):
            raise OSError(why)
        return _kept_alive(address)


def _kept_alive(address: AddrInfoType) -> socket.socket:
    """A session that only receives would never notice that red-box's host is gone."""
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    for option in KEEP_ALIVE:
        opened.setsockopt(*option)
    return opened


def upgrade_header(opened: ClientWebSocketResponse[bool], name: str) -> str:
    """Of the answer to its upgrade, which aiohttp does not make public; empty if it is missing."""
    return opened._response.headers.get(name, "")  # noqa: SLF001


async def _refuse_upgrade(answer: ClientResponse) -> None:
    """Before aiohttp drops the body of an answer that refuses the upgrade."""
    if answer.status == HTTPStatus.SWITCHING_PROTOCOLS:
        return
    body = await whole(answer.content, OF_REFUSALS)
    OF_REFUSALS.check(body)
    raise refusal(answer.status, body, answer.headers.get("retry-after"))


def plain_session(
    connector: BaseConnector | None, refuse: Callable[[ClientResponse], Awaitable[None]] | None = None
) -> ClientSession:
    """A session without cookies, proxies or decompression; each request sets its own deadlines.

    With `refuse`, which raises for an answer that is not wanted, the connector stays another session's.
    """
    return ClientSession(
        connector=connector,
        timeout=ClientTimeout(total=None),
        cookie_jar=DummyCookieJar(),
        headers={"accept-encoding": "identity"},
        auto_decompress=False,
        read_bufsize=READ_AHEAD,
        trust_env=False,  # neither proxy variables nor a netrc file
        raise_for_status=refuse or False,
        connector_owner=refuse is None,
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
        (base.raw_host or "").encode("idna")  # as the resolver does, whose UnicodeError aiohttp passes on
    except ValueError as error:
        raise Unreachable(f"{endpoint} is not a valid address: {error}") from error
    return base.with_path(base.raw_path.rstrip("/") + quote(path, safe="/%"), encoded=True).with_query(query)


def pem_of(bundle: str | bytes) -> str:
    """A bundle in ASCII, which is all of PEM: certificates come with comments, in any script and encoding.

    ValueError if nothing is left. An empty bundle stays empty: TLS clients then use the system's authorities.
    """
    raw = bundle.encode("ascii", "ignore") if isinstance(bundle, str) else bundle
    pem = raw.decode("ascii", "ignore")
    if bundle and not pem.strip():
        raise ValueError("it holds no certificate in PEM")
    return pem
