"""The option `--version` of the controllers' command lines."""

from importlib.metadata import version as version_of
from typing import Annotated

import typer


def add_version_option(app: typer.Typer, program: str) -> None:
    def print_version(wanted: bool) -> None:  # noqa: FBT001 (typer calls it)
        if wanted:
            typer.echo(f"{program} {version_of('red-box')}")
            raise typer.Exit

    @app.callback()
    def options(
        *,
        version: Annotated[
            bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version.")
        ] = False,
    ) -> None:
        """Options that all commands share."""
