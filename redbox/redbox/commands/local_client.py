"""Asking the red-box of this host, at its Unix socket: there you are who you are."""

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
        help=f"Where red-box listens on this host: {SOCKET}, or your own in $XDG_RUNTIME_DIR.",
        show_default=False,
    ),
]


def call(socket: Path | None, work: Callable[[RedboxClient], Awaitable[Answer]]) -> Answer:
    """Do this with a client; what goes wrong ends the command in words."""

    async def do() -> Answer:
        at = socket or default_socket()
        async with RedboxClient("http://redbox", socket=str(at)) as client:
            try:
                return await work(client)
            except Unreachable as error:
                raise Unreachable(_why(at, error)) from error

    with exit_on_error():
        return asyncio.run(do())


def default_socket() -> Path:
    """The host's red-box, or else one's own."""
    own = Path(os.environ.get("XDG_RUNTIME_DIR", Path.home() / ".local/state"), "redbox/redbox.sock")
    return own if own.exists() and not SOCKET.exists() else SOCKET


def _why(socket: Path, error: Unreachable) -> str:
    if not socket.exists():
        return f"no red-box listens at {socket}: is it running here? (--socket says where else)"
    if not os.access(socket, os.W_OK):
        return f"you may not connect to {socket}: see its mode"
    return f"red-box at {socket} did not answer: {error}"
