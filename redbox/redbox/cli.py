"""The command line of `redbox`. Each command's work is in a module that is imported when the command is run.

The server's parts take a second to import: too long for `--help`, a completion, or a question to a server
that runs. So what is listed of a command stands here; a test holds it to what its module says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

CLIENT_PANEL = "At the red-box of this host"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command's module, and its line in the list."""

    module: str
    help: str
    panel: str | None = None
    hidden: bool = False


COMMANDS = {
    "init": CommandEntry(
        "commands.setup", "Write the settings, the CA and certificate, and all else that is needed here."
    ),
    "serve": CommandEntry("commands.setup", "Run the server until it is told to end."),
    "sudoers": CommandEntry("commands.setup", "Print the one sudoers rule that red-box needs."),
    "sshd": CommandEntry("commands.setup", "Print what a login node's sshd needs for the transport ssh."),
    "uninstall": CommandEntry(
        "commands.setup", "Remove from this host what `redbox init` made; jobs in Slurm run on."
    ),
    "check": CommandEntry("commands.check", "Tell all that is wrong here, each with its cure."),
    "recover": CommandEntry("commands.recover", "Rebuild a journal that was lost."),
    "token": CommandEntry("commands.tokens", "Opaque tokens, for callers that have no ServiceAccount."),
    "jobs": CommandEntry("commands.jobs", "List your jobs, or show one of them.", CLIENT_PANEL),
    "logs": CommandEntry("commands.logs", "Print what a job wrote.", CLIENT_PANEL),
    "cancel": CommandEntry("commands.jobs", "Cancel a job.", CLIENT_PANEL),
    "whoami": CommandEntry(
        "commands.cluster", "Tell who you are to this red-box, and what you may do.", CLIENT_PANEL
    ),
    "partitions": CommandEntry("commands.cluster", "List the partitions that you may use.", CLIENT_PANEL),
    "openapi": CommandEntry("commands.openapi", "Print the OpenAPI document of this version.", hidden=True),
}


class LazyCommandGroup(TyperGroup):
    """Lists commands without importing them, and imports the one that is run."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 (typer's own type for it is private)
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:  # noqa: ANN401 (as above)
        """Tell of a command no more than its line in the list."""
        del ctx
        listed = COMMANDS.get(cmd_name)
        if listed is None:
            return None
        return TyperCommand(
            cmd_name, help=listed.help, hidden=listed.hidden, rich_help_panel=listed.panel or "Commands"
        )

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401 (as above)
        """The whole command, to be run."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name and command else command, rest


def load(name: str) -> Any:  # noqa: ANN401 (typer's own type for it is private)
    """Import a command, and bring it into typer's form."""
    found: typer.Typer | Callable[..., None] = getattr(import_module(f"redbox.{COMMANDS[name].module}"), name)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(found)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="redbox",
    cls=LazyCommandGroup,
    help="Runs Slurm jobs for callers from Kubernetes, each as its own Unix user.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 (typer calls it)
    if wanted:
        typer.echo(f"redbox {import_module('importlib.metadata').version('red-box')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Hold the options that every command shares."""
