"""`redbox logs`: the bytes that a job, or one container of a pod, wrote, unchanged, to stdout."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated

import typer

from redbox.commands.exit_codes import exit_with
from redbox.commands.jobs import AttemptOption, KeyArgument
from redbox.commands.local_client import SocketOption, call
from redbox_api.client import LogQuery, RedboxClient
from redbox_api.log_reader import follow_log
from redbox_api.models import Job


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
    container: Annotated[
        str | None,
        typer.Option("--container", "-c", help="Of a pod: the output of this container, both streams."),
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of a container: its start before the present one.")
    ] = False,
    restart: Annotated[
        int | None,
        typer.Option("--restart", min=0, help="Of a container: which start, from 0; else the newest."),
    ] = None,
    attempt: AttemptOption = 1,
    socket: SocketOption = None,
) -> None:
    """Print the output of a job, or of one container of a pod, byte by byte as it was written."""
    query = LogQuery(
        stream="stderr" if stderr else "stdout",
        attempt=attempt,
        task=task,
        container=container,
        restart=restart,
        tail_lines=tail,
    )
    _check_options(query, previous=previous)

    async def print_log(client: RedboxClient) -> None:
        wanted = query
        if previous:
            job = await client.get_job(key, attempt=attempt)
            wanted = replace(query, restart=previous_start(job, container))
        if follow:
            async with aclosing(follow_log(client, key, wanted)) as pieces:
                await _print(pieces)
        else:
            async with client.read_log(key, wanted) as answer:
                await _print(answer.pieces)

    call(socket, print_log)


def _check_options(query: LogQuery, *, previous: bool) -> None:
    if query.container is None and (previous or query.restart is not None):
        raise typer.BadParameter("--previous and --restart are of a container: name it with --container")
    if previous and query.restart is not None:
        raise typer.BadParameter("--previous and --restart exclude each other")
    if query.container is not None and (query.stream == "stderr" or query.task is not None):
        raise typer.BadParameter(
            "a container has one log, with stdout and stderr in it: leave out --stderr and --task"
        )


def previous_start(job: Job, name: str | None) -> int | None:
    """The number of the container's start before the present one; None where red-box has to say why not."""
    containers = job.pod.containers if job.pod is not None else []
    container = next((container for container in containers if container.name == name), None)
    if container is None:
        return None
    if container.last_state.terminated is None:
        exit_with(f"Container {name} has no earlier start.")
    # A container that waits for its next start has not begun it: its newest start is the one that ended.
    waits = container.state.waiting is not None
    return container.restart_count if waits else max(0, container.restart_count - 1)


async def _print(pieces: AsyncIterator[bytes]) -> None:
    async for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
