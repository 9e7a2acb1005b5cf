"""The command line of `redbox`. Each command's work is in the module that it is named after."""

from importlib.metadata import version
from typing import Annotated

import typer

from redbox.cli_setup import init, serve, sudoers

app = typer.Typer(
    name="redbox",
    help="Runs Slurm jobs for callers from Kubernetes, each as its own Unix user.",
    no_args_is_help=True,
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
