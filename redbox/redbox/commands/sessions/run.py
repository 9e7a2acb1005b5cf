"""`redbox exec` and `redbox shell`: into a running job of your own, from the login node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from redbox.commands.exit_codes import exit_with
from redbox.commands.jobs import AttemptOption, KeyArgument
from redbox.commands.local_client import SocketOption, call
from redbox.commands.sessions.terminal import own_size, own_term, raw_terminal
from redbox_api.client import RedboxClient
from redbox_api.sessions.client import JobSession, SessionData, open_exec
from redbox_api.sessions.parts import ExecRequest, SessionChannel, SessionStatus
from redbox_shared.pod_contract import LOGIN_SHELL

READ_SIZE = 64 * 1024
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
    parts = {"command": tuple(command), "stdin": stdin, "container": container, "node": node, "task": task}
    _enter(socket, key, attempt, parts, tty=terminal)


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
    parts = {"command": LOGIN_SHELL, "container": container, "node": node, "task": task}
    _enter(socket, key, attempt, parts, tty=True)


def _enter(socket: Path | None, key: str, attempt: int, parts: Mapping[str, object], *, tty: bool) -> None:
    """Run a command until it ends, with these parts of its request; one that is invalid is a usage error."""
    terminal = {"size": own_size(), "term": own_term()} if tty else {}
    try:
        request = ExecRequest.model_validate({"tty": tty, **terminal, **parts})
    except ValidationError as error:
        raise wrong(error) from None
    end(call(socket, lambda client: run_session(client, key, request, attempt)))


def wrong(error: ValidationError) -> typer.BadParameter:
    first = error.errors()[0]
    return typer.BadParameter(f"{'.'.join(map(str, first['loc'])) or 'command'}: {first['msg']}")


def end(status: SessionStatus) -> None:
    """Exit as the command did; say what else ended the session."""
    code = status.exit_code
    if code is None:
        exit_with(f"{status.reason}: {status.message}")
    raise typer.Exit(code)


async def run_session(client: RedboxClient, key: str, request: ExecRequest, attempt: int) -> SessionStatus:
    async with open_exec(client, key, request, attempt=attempt) as session:
        with (
            raw_terminal() if request.tty else contextlib.nullcontext(),
            passed_on_input(session) if request.stdin else contextlib.nullcontext(),
        ):
            if request.tty:
                pass_on_sizes(session)
            return await print_output(session)


async def print_output(session: JobSession) -> SessionStatus:
    """A stream that was closed before this command began is None."""
    outputs = {SessionChannel.STDOUT: sys.stdout, SessionChannel.STDERR: sys.stderr}
    while isinstance(event := await session.receive(), SessionData):
        output = outputs.get(event.channel)
        if output is not None and event.data:
            output.buffer.write(event.data)
            output.buffer.flush()
    return event


@contextlib.contextmanager
def passed_on_input(session: JobSession) -> Iterator[None]:
    """In a thread that ends with the process: a file cannot be waited for, and a read not be interrupted.

    What it has read when the session ends goes nowhere, and nothing is said of that.
    """
    loop, has_ended = asyncio.get_running_loop(), threading.Event()
    sending: set[asyncio.Task[None]] = set()

    def hand_over(send: Callable[[], Coroutine[Any, Any, None]]) -> None:
        is_sent = threading.Event()

        def begin() -> None:
            if not has_ended.is_set():
                task = loop.create_task(send())
                sending.add(task)
                task.add_done_callback(lambda _: is_sent.set())
                task.add_done_callback(sending.discard)

        loop.call_soon_threadsafe(begin)
        is_sent.wait()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while not has_ended.is_set() and (data := next_input()):
                hand_over(partial(session.send, data))
            if not has_ended.is_set():
                hand_over(session.close_input)

    threading.Thread(target=read, daemon=True).start()
    try:
        yield
    finally:
        has_ended.set()


def next_input() -> bytes:
    """None at its end, as of a file that was closed before this command began, or a terminal that is gone."""
    try:
        return os.read(sys.stdin.fileno(), READ_SIZE)
    except (AttributeError, OSError, ValueError):
        return b""


def pass_on_sizes(session: JobSession) -> None:
    loop = asyncio.get_running_loop()
    sending: set[asyncio.Task[None]] = set()

    def send() -> None:
        size = own_size()
        if size is not None:
            task = loop.create_task(session.resize(size))
            sending.add(task)
            task.add_done_callback(sending.discard)

    loop.add_signal_handler(signal.SIGWINCH, send)
