"""`redbox logs`: the bytes that a job wrote, to stdout as they are."""

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
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended and its last byte is out.")
    ] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="What it wrote to stderr instead.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Begin so many lines before the end.")
    ] = None,
    task: Annotated[int | None, typer.Option("--task", min=0, help="Of an array: which task's.")] = None,
    attempt: AttemptOption = 1,
    socket: SocketOption = None,
) -> None:
    """Print what a job wrote, to stdout or to stderr, byte by byte as it is."""
    query = LogQuery(stream="stderr" if stderr else "stdout", attempt=attempt, task=task, tail_lines=tail)

    async def do(client: RedboxClient) -> None:
        if follow:
            async with aclosing(follow_log(client, key, query)) as pieces:
                await _print(pieces)
        else:
            async with client.read_log(key, query) as answer:
                await _print(answer.pieces)

    call(socket, do)


async def _print(pieces: AsyncIterator[bytes]) -> None:
    async for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
