"""The TLS listener of the kubelet API: who shows no certificate of the cluster's client CA gets no answer.

Certificate and CA change while it serves. New connections meet the new ones; those that there are go on.
Connections are taken one by one, and not by asyncio's own server, which begins a handshake with each at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
import tempfile
from typing import Any

import structlog
from aiohttp import web

from redbox_api.authorities import pem_of
from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.kubelet.handshake_limits import HandshakeLimits
from redbox_resourced.kubelet.serving_certificate import ServingKeyPair

log = structlog.get_logger(__name__)
CLIENT_CA_NAMESPACE, CLIENT_CA_NAME = "kube-system", "extension-apiserver-authentication"
CLIENT_CA_KEY = "client-ca-file"
BACKLOG = 128
HANDSHAKE_S = 5.0
ACCEPT_AGAIN_S = 0.5


class KubeletListener:
    """Serves an aiohttp runner on one port, as soon as a certificate and the clients' CA are there."""

    def __init__(self, objects: ObjectClient, runner: web.AppRunner, address: str, port: int) -> None:
        self.serves = asyncio.Event()
        self.trouble = "the kubelet API waits for its certificate"
        self._runner = runner
        self._bind_to = (address, port)
        self._pair: ServingKeyPair | None = None
        self._client_ca = ""
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # without a certificate: no handshake succeeds
        self._handshakes = HandshakeLimits()
        self._troubles = GroupedWarnings("connections not taken")
        self._changed = asyncio.Event()
        selection = {"fieldSelector": f"metadata.name={CLIENT_CA_NAME}"}
        where = ResourcePath("ConfigMap", namespace=CLIENT_CA_NAMESPACE)
        self._mirror = Informer(objects, where, selection=selection, reduced=_client_ca, told=self._ca_told)

    def use(self, pair: ServingKeyPair) -> None:
        """Serve with this certificate from now on."""
        self._pair = pair
        self._changed.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        with _listening(*self._bind_to) as listening:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._mirror.run())
                group.create_task(self._keep_tls())
                await self.serves.wait()
                await self._accept(listening, group)

    async def _keep_tls(self) -> None:
        """Have new connections meet the newest certificate and CA."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            context = self._context()
            if context is not None:
                self._tls, self.trouble = context, ""
                self.serves.set()

    async def _accept(self, listening: socket.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except OSError as error:  # no descriptors, most often: who connects waits in the kernel
                self._troubles.failed("kubelet API", error)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            self._troubles.mended("kubelet API")
            group.create_task(self._greet(connection, str(peer[0])))
            await asyncio.sleep(0)  # where there is always a next one, others must have their turn too

    async def _greet(self, connection: socket.socket, address: str) -> None:
        """The handshake, in its turn; who fails it, or gives way, is closed without a word."""
        serve: Any = self._runner.server
        with contextlib.ExitStack() as unserved:
            unserved.callback(connection.close)
            try:
                async with self._handshakes.turn(address):
                    await asyncio.get_running_loop().connect_accepted_socket(
                        serve, connection, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S
                    )
                unserved.pop_all()  # the connection is the server's now
            except OSError:  # all that TLS may have against it, too
                return
            except Exception:
                # What a stranger sends must not end what serves all.
                log.exception("handshake")

    def _context(self) -> ssl.SSLContext | None:
        if self._pair is None:
            return None
        if not self._client_ca:
            self.trouble = (
                f"the kubelet API does not serve: ConfigMap {CLIENT_CA_NAMESPACE}/{CLIENT_CA_NAME} has no "
                f"{CLIENT_CA_KEY}; the API server needs --client-ca-file"
            )
            return None
        try:
            return tls_context(self._pair, self._client_ca)
        except (ssl.SSLError, ValueError) as error:
            self.trouble = f"the kubelet API's certificate cannot be used: {error}"
            log.warning("kubelet API", trouble=self.trouble)
            return None

    def _ca_told(self, _: set[Place]) -> None:
        found = self._mirror.items.get((CLIENT_CA_NAMESPACE, CLIENT_CA_NAME), "")
        if found != self._client_ca or not found:
            self._client_ca = found
            self._changed.set()


def tls_context(pair: ServingKeyPair, client_ca: str) -> ssl.SSLContext:
    """TLS that demands a certificate of the client, signed by this CA alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=pem_of(client_ca))
    with tempfile.NamedTemporaryFile(dir=_memory()) as file:  # ssl takes a key from a file only
        file.write(pair.key + b"\n" + pair.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 (0600, and for a moment)


def _client_ca(config_map: Object) -> str:
    return str(config_map.get("data", {}).get(CLIENT_CA_KEY, ""))


def _listening(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET  # noqa: PLR2004
    listening = socket.create_server((address, port), family=family, backlog=BACKLOG)
    listening.settimeout(0)  # the loop waits
    return listening
