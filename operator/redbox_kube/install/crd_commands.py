"""What installation hooks run: `crds`, and other commands that act once at the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import typer
import yaml

from redbox_kube.api.objects import ApiError, Object, ObjectClient
from redbox_kube.install.crd_upgrade import NotEstablished, upgrade_crds
from redbox_shared.printable import printable

T = TypeVar("T")


class CommandFailed(Exception):
    """With a sentence for the log of the hook."""


def crd_commands(program: str, all_crds: Callable[[], Sequence[Object]]) -> typer.Typer:
    """`crds`, which prints them, and `crds apply`."""
    crds = typer.Typer(help=f"The CustomResourceDefinitions of {program}.", invoke_without_command=True)

    @crds.callback()
    def show(context: typer.Context) -> None:
        """Print the CRDs, for kubectl apply -f -; `apply` upgrades those of a cluster."""
        if context.invoked_subcommand is None:
            typer.echo(yaml.safe_dump_all(all_crds(), sort_keys=False), nl=False)

    @crds.command()
    def apply() -> None:
        """Upgrade the cluster's CRDs to this release; no version with stored objects is dropped."""
        for line in run_once(program, lambda objects: upgrade_crds(objects, all_crds())):
            say(line)

    return crds


def run_once(
    program: str, act: Callable[[ObjectClient], Awaitable[T]], kind: type[ObjectClient] = ObjectClient
) -> T:
    """Run `act` with a connection; a failure is one sentence and exit code 1."""

    async def connected() -> T:
        objects = await kind.connect(program)
        try:
            return await act(objects)
        finally:
            await objects.close()

    try:
        return asyncio.run(connected())
    except (ApiError, NotEstablished, CommandFailed) as error:
        say(f"{program}: {error}", err=True)
        raise typer.Exit(1) from None


def listed(text: str) -> list[str]:
    """The items of an option that is comma separated."""
    return [item.strip() for item in text.split(",") if item.strip()]


def say(text: str, *, err: bool = False) -> None:
    typer.echo(printable(text, lines=True), err=err)
