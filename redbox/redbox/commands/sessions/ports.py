"""`redbox forward`: local ports that lead to a running job's node.

In the job each connection is one of its user's, so that only this user's connections are accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import gaierror
from typing import Annotated

import typer
from pydantic import ValidationError

from redbox.commands.exit_codes import exit_with, say
from redbox.commands.jobs import AttemptOption, KeyArgument
from redbox.commands.local_client import SocketOption, call
from redbox.commands.sessions.local_peers import is_loopback, uid_of_peer
from redbox.commands.sessions.run import READ_SIZE, NodeOption, TaskOption, wrong
from redbox_api.client import RedboxClient
from redbox_api.errors import RedboxError, Refused
from redbox_api.sessions.client import SessionData
from redbox_api.sessions.forward import JobForward, PortConnection, begin_forward
from redbox_api.sessions.parts import PortRequest, SessionStatus
from redbox_shared.socket_options import RESET_ON_CLOSE

PORTS = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})")
HIGHEST_PORT = 65_535


def forward(
    key: KeyArgument,
    ports: Annotated[list[str], typer.Argument(help="LOCAL:REMOTE, or one number for both; LOCAL 0: any.")],
    *,
    address: Annotated[str, typer.Option("--address", help="Where to listen.")] = "127.0.0.1",
    any_user: Annotated[
        bool, typer.Option("--any-user", help="Accept connections of other users, too: they act as you.")
    ] = False,
    node: NodeOption = None,
    task: TaskOption = None,
    attempt: AttemptOption = 1,
    socket: SocketOption = None,
) -> None:
    """Forward local ports to a running job's node."""
    pairs = [read_ports(text) for text in ports]
    try:
        PortRequest(port=HIGHEST_PORT, node=node)
    except ValidationError as error:
        raise wrong(error) from None

    async def serve(client: RedboxClient) -> None:
        connections = ForwardedConnections(client, key, attempt, node, task, any_user=any_user)
        async with contextlib.AsyncExitStack() as stack:
            bound = [connections.bound(address, local, remote) for local, remote in pairs]
            servers = [await stack.enter_async_context(each) for each in bound]
            await connections.begin()
            for server, (_, remote) in zip(servers, pairs, strict=True):
                await server.start_serving()
                say(f"Forwarding from {address}:{server.sockets[0].getsockname()[1]} -> {remote}")
            await asyncio.Future()

    with contextlib.suppress(KeyboardInterrupt):
        call(socket, serve)


def read_ports(text: str) -> tuple[int, int]:
    """Local and remote port."""
    match = PORTS.fullmatch(text)
    remote = int(match[2]) if match else 0
    local = int(match[1]) if match and match[1] else remote
    if match is None or not 1 <= remote <= HIGHEST_PORT or local > HIGHEST_PORT:
        raise typer.BadParameter(f"{text!r}: write LOCAL:REMOTE, such as 8888:8888, or one number for both")
    return local, remote


class ForwardedConnections:
    """Connections of local programs, each carried to the job."""

    def __init__(
        self,
        client: RedboxClient,
        key: str,
        attempt: int,
        node: str | None,
        task: int | None,
        *,
        any_user: bool,
    ) -> None:
        self._client = client
        self._key = key
        self._any_user = any_user
        self._attempt = attempt
        self._node = node
        self._task = task
        self._forward: JobForward | None = None
        self._beginning = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> JobForward:
        """Red-box's forward; a new one after its end. Raises RedboxError for a refusal."""
        async with self._beginning:
            if self._forward is None or self._forward.failure is not None:
                begun = begin_forward(self._client, self._key, attempt=self._attempt, task=self._task)
                self._forward = await begun
            return self._forward

    @asynccontextmanager
    async def bound(self, address: str, local: int, remote: int) -> AsyncIterator[asyncio.Server]:
        """A server of this address, which does not accept connections yet."""

        def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self._any_user or is_own(writer):
                task = asyncio.create_task(self._carry(remote, reader, writer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                writer.close()

        try:
            server = await asyncio.start_server(carry, address, local, start_serving=False)
        except (OSError, UnicodeError) as error:
            exit_with(f"cannot listen on port {local} of {address}: {why_not(error)}")
        try:
            if not self._any_user and not all(is_loopback(each.getsockname()[0]) for each in server.sockets):
                exit_with(f"other hosts reach {address}, and act as you in the job: --any-user allows that")
            yield server
        finally:
            server.close()  # its own end would wait for the connections, from Python 3.12 on
            await self._end_connections()

    async def _end_connections(self) -> None:
        ending = list(self._tasks)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _carry(self, remote: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = await (await self.begin()).connect(remote, self._node)
            ended_in_order = False
            try:
                status = await _copy(reader, writer, connection)
                ended_in_order = status.exit_code is not None
                if not ended_in_order:
                    say(f"redbox: {status.message}", err=True)
            finally:
                if not ended_in_order:
                    reset(writer)
                await connection.close()
        except RedboxError as error:
            say(f"redbox: {error.problem.detail if isinstance(error, Refused) else error}", err=True)
        except OSError:
            pass  # the local program has gone
        finally:
            writer.close()


def why_not(error: OSError | UnicodeError) -> str:
    """Of a name that is not found the error has a text of its own; asyncio's are long."""
    if isinstance(error, UnicodeError):
        return "it is neither a name nor an address"
    if isinstance(error, gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


def reset(writer: asyncio.StreamWriter) -> None:
    """End it so that the local program does not take what it got for the whole."""
    writer.get_extra_info("socket").setsockopt(*RESET_ON_CLOSE)
    writer.transport.abort()


def is_own(writer: asyncio.StreamWriter) -> bool:
    """Whether a process of this user has connected; if not, a sentence on stderr."""
    peer, own = (writer.get_extra_info(name)[:2] for name in ("peername", "sockname"))
    uid = uid_of_peer(peer, own)
    if uid != os.getuid():
        whose = "of an unknown user" if uid is None else f"of the user with uid {uid}"
        say(f"redbox: refused a connection {whose}: only your own are accepted (--any-user)", err=True)
    return uid == os.getuid()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: PortConnection
) -> SessionStatus:
    """Copy both ways until the job has ended it; OSError if the local program has broken it."""
    receiving = asyncio.create_task(_receive(connection, writer))
    others = [asyncio.create_task(_send(reader, connection)), asyncio.create_task(_until_reset(writer))]
    try:
        done, _ = await asyncio.wait([receiving, *others], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {receiving}:
            task.result()
        return await receiving
    finally:
        for task in (receiving, *others):
            task.cancel()
        await asyncio.gather(receiving, *others, return_exceptions=True)


async def _until_reset(writer: asyncio.StreamWriter) -> None:
    """Raise ConnectionResetError once the local program has reset it.

    While the job reads nothing, asyncio reads nothing either, and would not notice.
    """
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()
    with select.epoll() as events:
        events.register(writer.get_extra_info("socket").fileno(), select.EPOLLERR | select.EPOLLET)
        loop.add_reader(events.fileno(), signalled.set)
        try:
            await signalled.wait()
            while not any(event & select.EPOLLERR for _, event in events.poll(0)):
                signalled.clear()
                await signalled.wait()
        finally:
            loop.remove_reader(events.fileno())
    raise ConnectionResetError


async def _send(reader: asyncio.StreamReader, connection: PortConnection) -> None:
    """The end of one direction is not that of the other: it does not return."""
    while data := await reader.read(READ_SIZE):
        await connection.send(data)
    await connection.close_input()
    await asyncio.Future()


async def _receive(connection: PortConnection, writer: asyncio.StreamWriter) -> SessionStatus:
    while isinstance(event := await connection.receive(), SessionData):
        if event.data:
            writer.write(event.data)
            await writer.drain()
        elif writer.can_write_eof():
            writer.write_eof()
    return event
