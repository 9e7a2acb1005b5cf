"""Where callers come in: the sockets and the certificate, opened before anything is served.

What cannot be opened is said in one sentence, with its cure. What is served there is the application's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import structlog
import uvicorn

from redbox.callers.connection_limits import ClientConnection, ConnectionLimiter
from redbox.callers.peers import PeerAwareProtocol, peer_of
from redbox.http.middleware.request_middleware import App
from redbox.settings import ListenSettings, TlsSettings

log = structlog.get_logger(__name__)
GRACE_S = 5
HANDSHAKE_S = 10.0
NO_DESCRIPTORS_S = 0.5
BACKLOG = 2048
IDLE_S = 30  # longer than clients keep a connection: one that we end as they use it costs them a request
FOR_ALL_USERS = 0o666  # who they are is what the kernel says of each connection


class CannotListen(Exception):
    """A socket or certificate that cannot be used: why, and what to do."""


class Listener(uvicorn.Server):
    """A uvicorn server at a socket of ours, that leaves signals to us: there are two in one process.

    It takes the connections itself, because asyncio's server knows no bound on those whose handshake is not
    over: whoever reaches the port could take all descriptors.
    """

    def __init__(self, config: uvicorn.Config, opened: socket.socket, connections: ConnectionLimiter) -> None:
        super().__init__(config)
        self._opened = opened
        self._connections = connections
        self._accepting: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        """Serve until `should_exit`."""
        async with asyncio.TaskGroup() as group:
            self._accepting = group.create_task(self._accept())
            await self.serve(sockets=[self._opened])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Only note that it has begun: `listen` takes the connections."""
        del sockets
        await self.lifespan.startup()
        self.servers = []
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and end those that are there."""
        if self._accepting is not None:
            self._accepting.cancel()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        self._opened.setblocking(False)  # noqa: FBT003 (the standard library takes no name for it)
        async with asyncio.TaskGroup() as handshakes:
            while True:
                try:
                    taken, address = await loop.sock_accept(self._opened)
                    peer = _peer_name(taken, address)
                except OSError as error:
                    log.warning("no connection can be taken", error=_words(error))
                    await asyncio.sleep(NO_DESCRIPTORS_S)
                    continue
                connection = self._connections.open(peer, taken.close)
                handshakes.create_task(self._begin(taken, connection))

    async def _begin(self, taken: socket.socket, connection: ClientConnection) -> None:
        """Shake hands, where there is TLS, and leave the rest to the protocol."""
        task = asyncio.current_task()
        if task is None or taken.fileno() < 0:  # it has given way to others before it came here
            return
        connection.end = task.cancel
        loop = asyncio.get_running_loop()
        deadline = HANDSHAKE_S if self.config.ssl else None
        try:
            await loop.connect_accepted_socket(
                lambda: self._protocol(connection), taken, ssl=self.config.ssl, ssl_handshake_timeout=deadline
            )
        except OSError:  # no TLS, a certificate that is not trusted there, or too slow: nothing of ours
            connection.release()
        except asyncio.CancelledError:
            connection.release()
            raise
        except Exception:  # one connection's odd fault is not the server's end
            connection.release()
            log.exception("a connection could not be begun", peer=connection.peer)

    def _protocol(self, connection: ClientConnection) -> PeerAwareProtocol:
        return PeerAwareProtocol(self.config, self.server_state, self.lifespan.state, connection=connection)


def open_listeners(
    listen: ListenSettings, tls: TlsSettings, app: App, connections: ConnectionLimiter
) -> list[Listener]:
    """The port and the Unix socket of the settings, bound; raises CannotListen."""
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
    """New connections get the new certificate; a bad one is said, and the old one stays.

    It is tried in a context of its own: one that fails half way would leave this one with a certificate and
    another's key.
    """
    if config.ssl is None or config.ssl_certfile is None or config.ssl_keyfile is None:
        return
    try:
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), config.ssl):
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile)
    except OSError as error:
        log.error("the new certificate cannot be used, the old one stays", error=str(error))  # noqa: TRY400


def bound_port(address: str, port: int) -> socket.socket:
    """A listening socket of this port, whose connections send at once.

    asyncio turns Nagle's algorithm off for sockets that it made itself only. With it, an answer's body waits
    for the caller's delayed acknowledgement of its headers: 40 ms a request.
    """
    both = address == "::" and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        opened = socket.create_server((address, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise CannotListen(
            f"Port {port} of {address} cannot be listened at: {_words(error)}. End what holds it, "
            "or choose another listen.port (and name it in the SlurmCluster)."
        ) from error
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
    return opened


def bound_path(path: Path) -> socket.socket:
    """A listening Unix socket; what a server that was killed left behind is replaced, nothing else is.

    A directory that a reboot took away with its parent's other contents is made anew, for oneself.
    """
    if path.exists() and not path.is_socket():
        raise CannotListen(f"{path} is there and is no socket: choose another listen.unix_socket.")
    opened = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.unlink(missing_ok=True)
        opened.bind(os.fspath(path))
        path.chmod(FOR_ALL_USERS)
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise CannotListen(
            f"The socket {path} cannot be made: {_words(error)}. Its directory must be there and "
            "be red-box's own (listen.unix_socket: null goes without one)."
        ) from error
    return opened


def _config(app: App, *, ssl_certfile: str | None = None, ssl_keyfile: str | None = None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="none",
        server_header=False,
        proxy_headers=False,  # else whoever calls from this host says from where, and the audit believes it
        ws="none",
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=IDLE_S,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
    )


def _load(config: uvicorn.Config) -> None:
    try:
        config.load()
    except OSError as error:
        raise CannotListen(
            f"The certificate {config.ssl_certfile} with the key {config.ssl_keyfile} cannot be used: "
            f"{error}. `redbox init` makes new ones."
        ) from error


def _peer_name(taken: socket.socket, address: object) -> str:
    """Whose strangers are counted together: those of one address, or of one user of this host."""
    if isinstance(address, tuple) and address:
        return str(address[0])
    return str(peer_of(taken) or "nobody")


def _words(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
