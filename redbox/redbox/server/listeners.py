"""The listening sockets and their certificate, opened before anything is served.

Each error is one sentence, with its remedy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from contextvars import Context
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from redbox.callers.connection_limits import ClientConnection, ConnectionLimiter
from redbox.callers.file_version import file_version
from redbox.callers.peers import PeerAwareProtocol, PeerAwareSocketProtocol, peer_of
from redbox.core.turns import ShareKind, work_for, working_for
from redbox.server.arrivals import Arrivals
from redbox.server.certificates import BadCertificate, facts_of
from redbox.settings import ListenSettings, TlsSettings
from redbox_api.sessions.parts import MAX_FIRST_MESSAGE

log = structlog.get_logger(__name__)
GRACE_S = 5
HANDSHAKE_S = 10.0
NO_DESCRIPTORS_S = 0.5
NO_PLACE_S = 0.05
WAITS_FOR_PLACE_S = 1.5
"""Clients that start together do not close each other; then the oldest gives way, which may be silent."""
BACKLOG = 2048
ACCEPTED_IN_A_TURN = 32
CERTIFICATE_CHECK_S = 10.0
IDLE_S = 30  # longer than clients keep a connection: closing one that a client just reuses costs it a request
FOR_ALL_USERS = 0o666  # each connection is authenticated by the kernel's peer credentials


WEBSOCKETS: Mapping[str, Any] = {
    "ws": PeerAwareSocketProtocol,
    "ws_max_size": MAX_FIRST_MESSAGE,
    "ws_ping_timeout": None,  # see PeerAwareSocketProtocol
    "ws_per_message_deflate": False,
}


class ListenError(Exception):
    """A socket or certificate cannot be used: the reason and the remedy."""


class Listener(uvicorn.Server):
    """A uvicorn server at an open socket, without signal handlers: there are two in one process.

    It accepts connections itself, because asyncio's server has no limit on unfinished handshakes: any host
    that reaches the port could take all descriptors.
    """

    def __init__(self, config: uvicorn.Config, opened: socket.socket, connections: ConnectionLimiter) -> None:
        super().__init__(config)
        self._opened = opened
        self._connections = connections
        self._accepting: asyncio.Task[None] | None = None
        self._is_accepting = True
        self._accepts = connections.shares.of(ShareKind.ACCEPT, str(opened.getsockname()))
        self._arrivals = Arrivals()

    async def listen(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._accepting = group.create_task(self._accept())
            await self.serve(sockets=[self._opened])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Mark the server as started: `listen` accepts connections."""
        del sockets
        await self.lifespan.startup()
        self.servers = []
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end those that are open."""
        if self._accepting is not None:
            self._accepting.cancel()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def _accept(self) -> None:
        """Until it is cancelled; what has arrived and not begun is closed."""
        self._opened.setblocking(False)  # noqa: FBT003 (the standard library has no keyword for it)
        async with asyncio.TaskGroup() as self._handshakes:
            self._wait_for_connections()
            try:
                await asyncio.Future()
            finally:
                self._is_accepting = False
                asyncio.get_running_loop().remove_reader(self._opened)

    def _wait_for_connections(self) -> None:
        if self._is_accepting:
            with work_for(self._accepts):
                asyncio.get_running_loop().add_reader(self._opened, self._take_connections)

    def _take_connections(self) -> None:
        """Accept what has arrived; each waits for its address's turn, which costs little before it."""
        loop = asyncio.get_running_loop()
        try:
            for _ in range(ACCEPTED_IN_A_TURN):
                accepted, address = self._opened.accept()
                self._arrived(accepted, _peer_name(accepted, address))
        except BlockingIOError:
            pass
        except OSError as error:
            log.warning("connections cannot be accepted", error=_reason(error))
            loop.remove_reader(self._opened)
            loop.call_later(NO_DESCRIPTORS_S, self._wait_for_connections)

    def _arrived(self, accepted: socket.socket, peer: str) -> None:
        is_first = peer not in self._arrivals
        closed = self._arrivals.add(peer, accepted)
        if closed is not None:
            closed.close()
            self._connections.dropped += 1
        if is_first:
            self._begin_later(peer)

    def _begin_later(self, peer: str) -> None:
        context = Context()
        context.run(working_for.set, self._connections.share_of(peer))
        asyncio.get_running_loop().call_soon(self._begin, peer, context=context)

    def _begin(self, peer: str) -> None:
        """Its address has its turn: begin the connection that waits longest, if it was not closed."""
        has_time = self._arrivals.waits_s(peer) < WAITS_FOR_PLACE_S
        if self._is_accepting and has_time and self._connections.is_full(peer):
            asyncio.get_running_loop().call_later(NO_PLACE_S, self._begin_later, peer)
            return
        accepted = self._arrivals.take(peer)
        if peer in self._arrivals:
            self._begin_later(peer)
        if accepted is None:
            return
        if not self._is_accepting:
            accepted.close()
            return
        accepted.setblocking(False)  # noqa: FBT003
        connection = self._connections.open(peer, accepted.close)
        with work_for(connection):
            self._handshakes.create_task(self._handshake(accepted, connection))

    async def _handshake(self, accepted: socket.socket, connection: ClientConnection) -> None:
        """Do the TLS handshake, if any, and pass the connection to the protocol."""
        task = asyncio.current_task()
        if task is None or accepted.fileno() < 0:  # closed in favour of other connections meanwhile
            return
        connection.end = task.cancel
        loop = asyncio.get_running_loop()
        deadline = HANDSHAKE_S if self.config.ssl else None
        try:
            await loop.connect_accepted_socket(
                lambda: self._protocol(connection),
                accepted,
                ssl=self.config.ssl,
                ssl_handshake_timeout=deadline,
            )
        except OSError:  # not TLS, an untrusted certificate, or too slow: the client's fault
            connection.release()
        except asyncio.CancelledError:
            connection.release()
            raise
        except Exception:  # a fault of one connection must not end the server
            connection.release()
            log.exception("handshake failed", peer=connection.peer)

    def _protocol(self, connection: ClientConnection) -> PeerAwareProtocol:
        return PeerAwareProtocol(self.config, self.server_state, self.lifespan.state, connection=connection)


def open_listeners(
    listen: ListenSettings, tls: TlsSettings, app: ASGIApp, connections: ConnectionLimiter
) -> list[Listener]:
    """Bind the port and the Unix socket of the settings; raises ListenError."""
    with ExitStack() as opened:
        listeners = []
        if listen.port:
            config = _config(app, ssl_certfile=str(tls.certificate_file), ssl_keyfile=str(tls.key_file))
            _load(config)
            port = opened.enter_context(bound_port(listen.address, listen.port))
            listeners.append(Listener(config, port, connections))
        if listen.unix_socket is not None:
            path = opened.enter_context(bound_path(listen.unix_socket))
            listeners.append(Listener(_config(app), path, connections))
        opened.pop_all()
        return listeners


def reload_certificate(config: uvicorn.Config) -> None:
    """Use the new certificate for new connections; an invalid one is logged, and the old one stays.

    It is loaded into a separate context first: a failure half way would leave the server's context with a
    certificate and the key of another.
    """
    if config.ssl is None or config.ssl_certfile is None or config.ssl_keyfile is None:
        return
    try:
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), config.ssl):
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile)
    except OSError as error:
        log.error("the new certificate cannot be used, the old one stays", error=str(error))  # noqa: TRY400


async def follow_certificate(config: uvicorn.Config, interval_s: float = CERTIFICATE_CHECK_S) -> None:
    """Reload the certificate when one of its files changes, as in a pod, which no SIGHUP reaches.

    A pair that is replaced one file after the other fails in between, and is read again at the next change.
    """
    if config.ssl_certfile is None or config.ssl_keyfile is None:
        return
    files = (Path(config.ssl_certfile), Path(config.ssl_keyfile))
    versions = [file_version(file) for file in files]
    while True:
        await asyncio.sleep(interval_s)
        current = [file_version(file) for file in files]
        if current != versions and None not in current:
            versions = current
            reload_certificate(config)


def certificate_ends(listen: ListenSettings, tls: TlsSettings) -> float | None:
    """When the certificate in the file ends, as a Unix time; None without a port, or if it cannot be read."""
    if not listen.port:
        return None
    try:
        return facts_of(tls.certificate_file.read_bytes()).not_after.timestamp()
    except (OSError, BadCertificate):
        return None


def bound_port(address: str, port: int) -> socket.socket:
    """Return a listening socket whose connections send without delay.

    asyncio turns Nagle's algorithm off only for sockets that it created. With it, a response's body waits for
    the client's delayed acknowledgement of its headers: 40 ms a request.
    """
    both = address == "::" and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        opened = socket.create_server((address, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise ListenError(
            f"Cannot listen on port {port} of {address}: {_reason(error)}. End the process that uses it, "
            "or choose another listen.port (and name it in the SlurmCluster)."
        ) from error
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
    return opened


def bound_path(path: Path) -> socket.socket:
    """Return a listening Unix socket; it replaces the stale socket of a killed server, but no other file.

    Its directory is created (0700) if a reboot removed it, as in /run.
    """
    if path.exists() and not path.is_socket():
        raise ListenError(f"{path} exists and is not a socket: choose another listen.unix_socket.")
    opened = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _refuse_directory_of_others(path)
        path.unlink(missing_ok=True)
        opened.bind(os.fspath(path))
        path.chmod(FOR_ALL_USERS)
        opened.listen(BACKLOG)
    except ListenError:
        opened.close()
        raise
    except OSError as error:
        opened.close()
        raise ListenError(
            f"The socket {path} cannot be created: {_reason(error)}. Its directory must exist and be owned "
            "by red-box's account (listen.unix_socket: null disables the socket)."
        ) from error
    return opened


def _refuse_directory_of_others(path: Path) -> None:
    """Who may rename what is there would have the mode of another file changed, or answer for red-box."""
    status = path.parent.stat()
    others = stat.S_IWOTH if status.st_gid in (0, os.getegid()) else stat.S_IWOTH | stat.S_IWGRP
    is_open = status.st_mode & others and not status.st_mode & stat.S_ISVTX
    if is_open or status.st_uid not in (0, os.geteuid()):
        raise ListenError(
            f"Other users can replace the socket {path}: choose a listen.unix_socket in a directory of "
            "red-box's own account that others may not write."
        )


def _config(
    app: ASGIApp, *, ssl_certfile: str | None = None, ssl_keyfile: str | None = None
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="none",
        server_header=False,
        proxy_headers=False,  # otherwise callers on this host could forge their address in the audit
        **WEBSOCKETS,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=IDLE_S,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
        ssl_context_factory=_without_tickets if ssl_certfile else None,
    )


def _without_tickets(_: uvicorn.Config, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """No client resumes, and each would keep 8 KiB for it."""
    context = default()
    context.num_tickets = 0
    return context


def _load(config: uvicorn.Config) -> None:
    try:
        config.load()
    except OSError as error:
        raise ListenError(
            f"The certificate {config.ssl_certfile} with the key {config.ssl_keyfile} cannot be used: "
            f"{error}. `redbox init` creates new ones."
        ) from error


def _peer_name(accepted: socket.socket, address: object) -> str:
    """Unauthenticated connections are counted by address, or by user of this host.

    A host with IPv6 chooses the last 64 bits of its address itself, for each connection.
    """
    if not isinstance(address, tuple) or not address:
        return str(peer_of(accepted) or "unknown")
    if ":" not in address[0]:
        return str(address[0])
    whole = IPv6Address(address[0])
    return str(whole.ipv4_mapped or IPv6Network((int(whole) >> 64 << 64, 64)))


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
