"""The command line of `redbox-operator`."""

import asyncio
from importlib.metadata import version
from typing import Annotated

import typer

from redbox_kube.own_token import Account
from redbox_operator import maintenance
from redbox_operator.watching import run_operator

app = typer.Typer(
    name="redbox-operator",
    help="Turns SlurmJobs into companions, and Slurm's states into their status.",
    no_args_is_help=True,
)
app.add_typer(maintenance.crds, name="crds")
app.command()(maintenance.uninstall)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 (typer calls it)
    if wanted:
        typer.echo(f"redbox-operator {version('red-box')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Hold the options that every command shares."""


@app.command()
def run(
    image: Annotated[str, typer.Option(envvar="REDBOX_COMPANION_IMAGE", help="The companion's image.")],
    namespace: Annotated[
        str, typer.Option(envvar="REDBOX_NAMESPACE", help="Where the operator itself runs.")
    ],
    account: Annotated[
        str, typer.Option(envvar="REDBOX_SERVICE_ACCOUNT", help="Its own service account.")
    ] = "redbox-operator",
) -> None:
    """Run the operator until it is told to end."""
    asyncio.run(run_operator(Account(namespace, account), image))
