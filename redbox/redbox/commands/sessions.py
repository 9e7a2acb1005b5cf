"""`redbox exec`, `shell` and `forward`: into a running job of your own, from the login node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import termios
import threading
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated

import typer

from redbox.commands.exit_codes import exit_with
from redbox.commands.jobs import AttemptOption, KeyArgument
from redbox.commands.local_client import SocketOption, call
from redbox_api.client import RedboxClient
from redbox_api.errors import RedboxError, Refused
from redbox_api.session_client import JobSession, SessionData, open_exec, open_port
from redbox_api.session_parts import ExecRequest, SessionChannel, SessionStatus, TerminalSize

READ_SIZE = 64 * 1024
SHELL = ("/bin/sh", "-c", 'if [ -x "$SHELL" ]; then exec "$SHELL" -l; fi; exec /bin/sh')
PORTS = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})")
HIGHEST_PORT = 65_535
ContainerOption = Annotated[
    str | None, typer.Option("--container", "-c", help="Of a pod: in this container.")
]
NodeOption = Annotated[
    str | None, typer.Option("--node", help="On this node of the job; by default its first.")
]
TaskOption = Annotated[int | None, typer.Option("--task", min=0, help="The task of a job array.")]


def exec_(
    key: KeyArgument,
    command: Annotated[list[str], typer.Argument(help="After --: the program and its arguments.")],
    *,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass on this command's input.")] = False,
    terminal: Annotated[bool, typer.Option("--tty", "-t", help="Give it a terminal.")] = False,
    container: ContainerOption = None,
    node: NodeOption = None,
    task: TaskOption = None,
    attempt: AttemptOption = 1,
    socket: SocketOption = None,
) -> None:
    """Run a command inside a running job."""
    request = ExecRequest(
        command=tuple(command),
        tty=terminal,
        stdin=stdin,
        container=container,
        node=node,
        task=task,
        size=own_size() if terminal else None,
        term=own_term() if terminal else None,
    )
    end(call(socket, lambda client: run_session(client, key, request, attempt)))


def shell(
    key: KeyArgument,
    *,
    container: ContainerOption = None,
    node: NodeOption = None,
    task: TaskOption = None,
    attempt: AttemptOption = 1,
    socket: SocketOption = None,
) -> None:
    """Open a shell inside a running job."""
    request = ExecRequest(
        command=SHELL, tty=True, container=container, node=node, task=task, size=own_size(), term=own_term()
    )
    end(call(socket, lambda client: run_session(client, key, request, attempt)))


def forward(
    key: KeyArgument,
    ports: Annotated[list[str], typer.Argument(help="LOCAL:REMOTE, or one number for both; LOCAL 0: any.")],
    *,
    address: Annotated[str, typer.Option("--address", help="Where to listen.")] = "127.0.0.1",
    node: NodeOption = None,
    task: TaskOption = None,
    attempt: AttemptOption = 1,
    socket: SocketOption = None,
) -> None:
    """Forward local ports to a running job's node."""
    pairs = [read_ports(text) for text in ports]

    async def serve(client: RedboxClient) -> None:
        connections = ForwardedConnections(client, key, attempt, node, task)
        async with contextlib.AsyncExitStack() as stack:
            for local, remote in pairs:
                await stack.enter_async_context(connections.listening(address, local, remote))
            await asyncio.Future()

    with contextlib.suppress(KeyboardInterrupt):
        call(socket, serve)


def end(status: SessionStatus) -> None:
    """Exit as the command did; say what else ended the session."""
    code = status.exit_code
    if code is None:
        exit_with(f"{status.reason}: {status.message}")
    raise typer.Exit(code)


async def run_session(client: RedboxClient, key: str, request: ExecRequest, attempt: int) -> SessionStatus:
    async with open_exec(client, key, request, attempt=attempt) as session:
        with raw_terminal() if request.tty else contextlib.nullcontext():
            if request.stdin:
                pass_on_input(session)
            if request.tty:
                pass_on_sizes(session)
            return await print_output(session)


async def print_output(session: JobSession) -> SessionStatus:
    outputs = {SessionChannel.STDOUT: sys.stdout.buffer, SessionChannel.STDERR: sys.stderr.buffer}
    while isinstance(event := await session.receive(), SessionData):
        output = outputs.get(SessionChannel(event.channel))
        if output is not None and event.data:
            output.write(event.data)
            output.flush()
    return event


def pass_on_input(session: JobSession) -> None:
    """In a thread that ends with the process: a file cannot be waited for, and a read not be interrupted."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        with contextlib.suppress(RuntimeError, OSError):  # the loop has ended
            while data := os.read(sys.stdin.fileno(), READ_SIZE):
                asyncio.run_coroutine_threadsafe(session.send(data), loop).result()
            asyncio.run_coroutine_threadsafe(session.close_input(), loop).result()

    threading.Thread(target=read, daemon=True).start()


def pass_on_sizes(session: JobSession) -> None:
    loop = asyncio.get_running_loop()
    sending: set[asyncio.Task[None]] = set()

    def send() -> None:
        size = own_size()
        if size is not None:
            task = loop.create_task(session.resize(size.columns, size.rows))
            sending.add(task)
            task.add_done_callback(sending.discard)

    loop.add_signal_handler(signal.SIGWINCH, send)


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Each key goes to the job, Ctrl-C too; afterwards the terminal is as it was."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def own_size() -> TerminalSize | None:
    try:
        columns, rows = os.get_terminal_size(sys.stdin.fileno())
    except (OSError, ValueError):
        return None
    return TerminalSize(columns=columns, rows=rows) if columns and rows else None


def own_term() -> str | None:
    term = os.environ.get("TERM", "")
    return term if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", term) else None


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
        self, client: RedboxClient, key: str, attempt: int, node: str | None, task: int | None
    ) -> None:
        self._client = client
        self._key = key
        self._where = {"attempt": attempt, "node": node, "task": task}

    @asynccontextmanager
    async def listening(self, address: str, local: int, remote: int) -> AsyncIterator[None]:
        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._carry(remote, reader, writer)

        try:
            server = await asyncio.start_server(carry, address, local)
        except OSError as error:
            exit_with(f"cannot listen on port {local} of {address}: {os.strerror(error.errno or 0)}")
        async with server:
            port = server.sockets[0].getsockname()[1]
            typer.echo(f"Forwarding from {address}:{port} -> {remote}")
            yield

    async def _carry(self, remote: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        where = self._where
        try:
            async with open_port(self._client, self._key, remote, **where) as session:  # type: ignore[arg-type]
                sending = asyncio.create_task(_send(reader, session))
                try:
                    status = await _receive(session, writer)
                finally:
                    sending.cancel()
            if status.exit_code is None:
                typer.echo(f"redbox: {status.message}", err=True)
        except RedboxError as error:
            typer.echo(f"redbox: {error.problem.detail if isinstance(error, Refused) else error}", err=True)
        except OSError:
            pass  # the local program has gone
        finally:
            writer.close()


async def _send(reader: asyncio.StreamReader, session: JobSession) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_SIZE):
            await session.send(data)
    await session.close_input()


async def _receive(session: JobSession, writer: asyncio.StreamWriter) -> SessionStatus:
    while isinstance(event := await session.receive(), SessionData):
        if event.data:
            writer.write(event.data)
            await writer.drain()
        elif writer.can_write_eof():
            writer.write_eof()
    return event
