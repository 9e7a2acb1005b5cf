"""`redbox logs`: the bytes that a job wrote, unchanged, to stdout."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

import typer

from redbox.commands.jobs import AttemptOption, KeyArgument
from redbox.commands.local_client import SocketOption, call
from redbox_api.client import LogQuery, RedboxClient
from redbox_api.log_reader import follow_log


def logs(
    key: KeyArgument,
    *,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Follow until the job has ended and its last byte is printed."),
    ] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Print its stderr instead of its stdout.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Print only the last lines, so many.")
    ] = None,
    task: Annotated[int | None, typer.Option("--task", min=0, help="The task of a job array.")] = None,
    attempt: AttemptOption = 1,
    socket: SocketOption = None,
) -> None:
    """Print the output of a job, byte by byte as it wrote it."""
    query = LogQuery(stream="stderr" if stderr else "stdout", attempt=attempt, task=task, tail_lines=tail)

    async def print_log(client: RedboxClient) -> None:
        if follow:
            async with aclosing(follow_log(client, key, query)) as pieces:
                await _print(pieces)
        else:
            async with client.read_log(key, query) as answer:
                await _print(answer.pieces)

    call(socket, print_log)


async def _print(pieces: AsyncIterator[bytes]) -> None:
    async for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
