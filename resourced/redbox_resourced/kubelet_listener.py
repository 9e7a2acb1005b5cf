"""The TLS listener of the kubelet API: who shows no certificate of the cluster's client CA gets no answer.

Certificate and CA change while it serves. New connections meet the new ones; those that there are go on.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
import tempfile
from typing import Any

import structlog
from aiohttp import web

from redbox_kube.mirror import Mirror, Place
from redbox_kube.objects import Object, Objects, Where
from redbox_resourced.serving_certificate import Pair

log = structlog.get_logger(__name__)
CLIENT_CA_NAMESPACE, CLIENT_CA_NAME = "kube-system", "extension-apiserver-authentication"
CLIENT_CA_KEY = "client-ca-file"
BACKLOG = 128
HANDSHAKE_S = 5.0  # who opens connections and says nothing holds little, and not for long


class KubeletListener:
    """Serves an aiohttp runner on one port, as soon as a certificate and the clients' CA are there."""

    def __init__(self, objects: Objects, runner: web.AppRunner, address: str, port: int) -> None:
        self.serves = asyncio.Event()
        self.trouble = "the kubelet API waits for its certificate"
        self._runner = runner
        self._bind_to = (address, port)
        self._pair: Pair | None = None
        self._client_ca = ""
        self._changed = asyncio.Event()
        selection = {"fieldSelector": f"metadata.name={CLIENT_CA_NAME}"}
        where = Where("ConfigMap", namespace=CLIENT_CA_NAMESPACE)
        self._mirror = Mirror(objects, where, selection=selection, reduced=_client_ca, told=self._ca_told)

    def use(self, pair: Pair) -> None:
        """Serve with this certificate from now on."""
        self._pair = pair
        self._changed.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        with _listening(*self._bind_to) as listening:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._mirror.run())
                await self._serve(listening)

    async def _serve(self, listening: socket.socket) -> None:
        server: asyncio.Server | None = None
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                context = self._context()
                if context is None:
                    continue
                if server is not None:
                    server.close()  # the listening end alone: connections go on
                server = await self._start(listening.dup(), context)
                self.trouble = ""
                self.serves.set()
        finally:
            if server is not None:
                server.close()

    async def _start(self, listening: socket.socket, context: ssl.SSLContext) -> asyncio.Server:
        handler: Any = self._runner.server
        return await asyncio.get_running_loop().create_server(
            handler, sock=listening, ssl=context, ssl_handshake_timeout=HANDSHAKE_S
        )

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
        except ssl.SSLError as error:
            self.trouble = f"the kubelet API's certificate cannot be used: {error}"
            log.warning("kubelet API", trouble=self.trouble)
            return None

    def _ca_told(self, _: set[Place]) -> None:
        found = self._mirror.items.get((CLIENT_CA_NAMESPACE, CLIENT_CA_NAME), "")
        if found != self._client_ca or not found:
            self._client_ca = found
            self._changed.set()


def tls_context(pair: Pair, client_ca: str) -> ssl.SSLContext:
    """TLS that demands a certificate of the client, signed by this CA alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=client_ca)
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
    return socket.create_server((address, port), family=family, backlog=BACKLOG)
