"""The command line of `redbox`. Each command's work is in the module that it is named after."""

from importlib.metadata import version
from typing import Annotated

import typer

from redbox.cli_setup import init, serve, sudoers
from redbox.commands.check import check
from redbox.commands.cluster import partitions, whoami
from redbox.commands.jobs import cancel, jobs
from redbox.commands.logs import logs
from redbox.commands.openapi import openapi
from redbox.commands.recover import recover
from redbox.commands.tokens import token

app = typer.Typer(
    name="redbox",
    help="Runs Slurm jobs for callers from Kubernetes, each as its own Unix user.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 (typer calls it)
    if wanted:
        typer.echo(f"redbox {version('red-box')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Hold the options that every command shares."""


app.command()(init)
app.command()(serve)
app.command()(sudoers)
app.command()(check)
app.command()(recover)
app.add_typer(token)
for asks in (jobs, logs, cancel, whoami, partitions):
    app.command(rich_help_panel="At the red-box of this host")(asks)
app.command(hidden=True)(openapi)
