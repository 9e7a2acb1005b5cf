"""The command line of `redbox-resourced`. Each command's work is in the module that it is named after."""

from importlib.metadata import version
from typing import Annotated

import typer

app = typer.Typer(
    name="redbox-resourced", help="Publishes Slurm's partitions in Kubernetes.", no_args_is_help=True
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 (typer calls it)
    if wanted:
        typer.echo(f"redbox-resourced {version('red-box')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Hold the options that every command shares."""
