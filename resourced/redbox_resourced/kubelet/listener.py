"""The TLS listener of the kubelet API: clients must show a certificate of the cluster's client CA.

Certificate and CA may change while it serves: new connections use the new ones, existing connections go on.
Connections are accepted here, and not by asyncio's own server, which begins a handshake with each at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

import structlog
from aiohttp import web

from redbox_api.connections import pem_of
from redbox_kube.api import kinds
from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.kubelet.handshake_limits import HandshakeLimits
from redbox_resourced.kubelet.serving_certificate import ServingKeyPair

log = structlog.get_logger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CLIENT_CA_NAMESPACE, CLIENT_CA_NAME = "kube-system", "extension-apiserver-authentication"
CLIENT_CA_KEY = "client-ca-file"
BACKLOG = 128
HANDSHAKE_S = 5.0
FIRST_REQUEST_S = 5.0
"""After the handshake: the API server connects when it has a request."""
RETRY_ACCEPT_S = 0.5


class KubeletListener:
    """Serves an aiohttp runner on one port, as soon as the certificate and the clients' CA are available."""

    def __init__(self, objects: ObjectClient, runner: web.AppRunner, address: str, port: int) -> None:
        self.serves = asyncio.Event()
        self.problem = "the kubelet API is waiting for its certificate"
        self._runner = runner
        self._bind_to = (address, port)
        self._pair: ServingKeyPair | None = None
        self._client_ca = ""
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # without a certificate: no handshake succeeds
        self._handshakes = HandshakeLimits()
        self._requested: WeakKeyDictionary[asyncio.BaseTransport, asyncio.Event] = WeakKeyDictionary()
        """Set by the first request of each connection."""
        runner.app.middlewares.insert(0, self._note_request)
        self._warnings = GroupedWarnings("connections not accepted")
        selection = {"fieldSelector": f"metadata.name={CLIENT_CA_NAME}"}
        path = ResourcePath(kinds.CONFIG_MAP, namespace=CLIENT_CA_NAMESPACE)
        self._informer = Informer(
            objects, path, selection=selection, reduced=_client_ca, on_change=self._client_ca_changed
        )

    def use(self, pair: ServingKeyPair) -> None:
        self._pair = pair
        self._update_tls()

    async def run(self) -> None:
        with _listening_socket(*self._bind_to) as listening:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._informer.run())
                await self.serves.wait()
                await self._accept(listening, group)

    def _update_tls(self) -> None:
        """Use the newest certificate and CA for new connections."""
        if self._pair is None:
            return
        if not self._client_ca:
            self.problem = (
                f"the kubelet API does not serve: ConfigMap {CLIENT_CA_NAMESPACE}/{CLIENT_CA_NAME} has no "
                f"{CLIENT_CA_KEY}; the API server needs --client-ca-file"
            )
            return
        try:
            self._tls = tls_context(self._pair, self._client_ca)
        except (ssl.SSLError, ValueError) as error:
            self.problem = f"the kubelet API's certificate cannot be used: {error}"
            log.warning("kubelet API", problem=self.problem)
        else:
            self.problem = ""
            self.serves.set()

    async def _accept(self, listening: socket.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except OSError as error:  # most often no file descriptors: connections wait in the kernel
                self._warnings.failed("kubelet API", error)
                await asyncio.sleep(RETRY_ACCEPT_S)
                continue
            self._warnings.recovered("kubelet API")
            group.create_task(self._handshake(connection, str(peer[0])))
            await asyncio.sleep(0)  # accept may always succeed at once: let other tasks run

    async def _handshake(self, connection: socket.socket, address: str) -> None:
        """Shake hands within the limits; who fails, gives way or asks nothing is closed without an answer."""
        serve: Any = self._runner.server
        with contextlib.ExitStack() as opened:
            opened.callback(connection.close)
            try:
                async with self._handshakes.slot(address):
                    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                        serve, connection, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S
                    )
                opened.pop_all()  # from here on the server owns the connection
                opened.callback(transport.abort)
                with self._handshakes.silent():
                    async with asyncio.timeout(FIRST_REQUEST_S):
                        await self._requested.setdefault(transport, asyncio.Event()).wait()
                opened.pop_all()
            except OSError:  # including every TLS failure, and TimeoutError
                return
            except Exception:
                # Bytes of an unauthenticated client must not stop the server.
                log.exception("handshake")

    @web.middleware
    async def _note_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.transport is not None:
            self._requested.setdefault(request.transport, asyncio.Event()).set()
        return await handler(request)

    def _client_ca_changed(self, _: set[Place]) -> None:
        client_ca = self._informer.items.get((CLIENT_CA_NAMESPACE, CLIENT_CA_NAME), "")
        if client_ca != self._client_ca or not client_ca:
            self._client_ca = client_ca
            self._update_tls()


def tls_context(pair: ServingKeyPair, client_ca: str) -> ssl.SSLContext:
    """TLS that requires a client certificate, signed by this CA alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=pem_of(client_ca))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 (0600, and for a moment)
    with tempfile.NamedTemporaryFile(dir=memory) as file:  # ssl reads a key only from a file
        file.write(pair.key + b"\n" + pair.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _client_ca(config_map: Object) -> str:
    return str(config_map.get("data", {}).get(CLIENT_CA_KEY, ""))


def _listening_socket(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET  # noqa: PLR2004
    listening = socket.create_server((address, port), family=family, backlog=BACKLOG)
    listening.settimeout(0)  # the loop waits
    return listening
