"""Requests to the red-box of this host, at its Unix socket, as the Unix user that runs the command."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from redbox.commands.exit_codes import exit_on_error
from redbox_api.client import RedboxClient
from redbox_api.errors import Unreachable

Answer = TypeVar("Answer")
SOCKET = Path("/run/redbox/redbox.sock")
SocketOption = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        envvar="REDBOX_SOCKET",
        help=f"Red-box's Unix socket: {SOCKET}, or your own in $XDG_RUNTIME_DIR.",
        show_default=False,
    ),
]


def call(socket: Path | None, request: Callable[[RedboxClient], Awaitable[Answer]]) -> Answer:
    """Send requests; a RedboxError ends the command with a sentence."""

    async def run() -> Answer:
        path = socket or default_socket()
        async with RedboxClient("http://redbox", socket=str(path)) as client:
            try:
                return await request(client)
            except Unreachable as error:
                raise Unreachable(_explain(path, error)) from error

    with exit_on_error():
        return asyncio.run(run())


def default_socket() -> Path:
    """The socket of the host's red-box, or else of the user's own."""
    own = Path(os.environ.get("XDG_RUNTIME_DIR") or Path.home() / ".local/state", "redbox/redbox.sock")
    return own if _exists(own) and not _exists(SOCKET) else SOCKET


def _exists(socket: Path) -> bool:
    """Also of a path below the folder of another user, as XDG_RUNTIME_DIR may be after `su`."""
    try:
        return socket.exists()
    except PermissionError:
        return False


def _explain(socket: Path, error: Unreachable) -> str:
    try:
        socket.stat()
        is_allowed = os.access(socket, os.W_OK)
    except (FileNotFoundError, NotADirectoryError):
        return f"there is no socket {socket}: start red-box on this host, or give its socket with --socket"
    except OSError:
        is_allowed = False
    if not is_allowed:
        return f"you are not allowed to connect to {socket}: check its owner and mode"
    return f"red-box at {socket} does not answer: {error}"
