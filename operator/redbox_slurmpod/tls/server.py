"""A TLS listener within limits: connections in all and of one address, and the time of a handshake.

Connections are accepted here and not by asyncio's own server, which has one context for its life and no
limits. Who has not shaken hands yet, or shows no certificate where one is asked, takes no place of a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redbox_slurmpod.tls.certificate import ReloadedCertificate

log = logging.getLogger(__name__)
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_BACKLOG = 128
_RETRY_ACCEPT_S = 0.5
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class ConnectionLimits:
    """Clients above `total` and `per_address` are closed without an answer.

    Of those whose handshake is not done the oldest is closed for the newest.
    """

    total: int = 128
    per_address: int = 32
    handshakes: int = 64
    handshake_s: float = 5


class TlsServer:
    """Gives each connection to `handle`; with `client`, only those whose certificate has this name."""

    def __init__(
        self,
        certificate: ReloadedCertificate,
        handle: Handler,
        *,
        client: str = "",
        limits: ConnectionLimits = ConnectionLimits(),
    ) -> None:
        self._certificate = certificate
        self._handle = handle
        self._client = client
        self._limits = limits
        self._connections: Counter[str] = Counter()
        self._handshakes: dict[asyncio.Task[None], None] = {}
        """In the order of their beginning."""

    async def run(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    connection, peer = await loop.sock_accept(listening)
                except OSError as error:  # most often no file descriptors: connections wait in the kernel
                    log.warning("a connection could not be accepted: %s", error)
                    await asyncio.sleep(_RETRY_ACCEPT_S)
                    continue
                group.create_task(self._serve(connection, str(peer[0])))

    async def _serve(self, connection: socket.socket, address: str) -> None:
        context = self._certificate.context()
        if context is None:
            connection.close()
            return
        with contextlib.suppress(OSError):  # the client is gone, or its handshake failed
            await self._serve_over_tls(connection, context, address)

    @contextlib.contextmanager
    def _shaking_hands(self) -> Iterator[None]:
        own = asyncio.current_task()
        assert own is not None  # noqa: S101 (`run` makes one for each connection)
        if len(self._handshakes) >= self._limits.handshakes:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
        self._handshakes[own] = None
        try:
            yield
        finally:
            self._handshakes.pop(own, None)

    @contextlib.contextmanager
    def _counted(self, address: str) -> Iterator[None]:
        self._connections[address] += 1
        try:
            yield
        finally:
            self._connections[address] -= 1
            if not self._connections[address]:
                del self._connections[address]

    def _has_room(self, address: str) -> bool:
        limits = self._limits
        return self._connections.total() < limits.total and self._connections[address] < limits.per_address

    async def _serve_over_tls(self, connection: socket.socket, context: ssl.SSLContext, address: str) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_READ_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        with contextlib.ExitStack() as opened:
            opened.callback(connection.close)
            with self._shaking_hands():
                transport, _ = await loop.connect_accepted_socket(
                    lambda: protocol, connection, ssl=context, ssl_handshake_timeout=self._limits.handshake_s
                )
            opened.pop_all()
            opened.callback(transport.abort)
            if self._client and self._client not in names_of(transport.get_extra_info("peercert") or {}):
                log.warning("a client whose certificate is not that of %s was refused", self._client)
                return
            if not self._has_room(address):
                return
            with self._counted(address):
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                await self._handle(reader, writer)
                writer.close()
                async with asyncio.timeout(self._limits.handshake_s):
                    await writer.wait_closed()


def names_of(certificate: Mapping[str, Any]) -> set[str]:
    """The DNS names and the common name of a certificate as `ssl` has it."""
    alternative = {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
    subject = {
        value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"
    }
    return alternative | subject


def listen(address: str, port: int) -> socket.socket:
    """A listening socket for `TlsServer.run`; of IPv6 and IPv4 if `address` is `::`."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.create_server(
        (address, port),
        family=family,
        backlog=_BACKLOG,
        dualstack_ipv6=family == socket.AF_INET6 and address == "::" and socket.has_dualstack_ipv6(),
    )
    listening.setblocking(False)  # noqa: FBT003 - the name says it
    return listening
