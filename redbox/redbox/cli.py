"""The command line of `redbox`. A command's module is imported when the command is run.

The server's modules take a second to import: too long for `--help`, a completion, or a request to a running
server. So the list of commands is here; a test compares each help line with the docstring in its module.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from redbox_shared.printable import printable
from redbox_shared.program_modules import import_program

FULL = (errno.ENOSPC, errno.EDQUOT)
CLIENT_PANEL = "At the red-box of this host"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command's module, and its help line in the list."""

    module: str
    help: str
    panel: str | None = None
    hidden: bool = False
    name: str | None = None  # of the function, where the command's is a name of Python's own


COMMANDS = {
    "init": CommandEntry(
        "commands.setup", "Install red-box on this host: settings, CA, certificate, service."
    ),
    "serve": CommandEntry("commands.serve", "Run the server until SIGTERM or SIGINT."),
    "sudoers": CommandEntry("commands.setup", "Print the sudoers rule that red-box needs."),
    "sshd": CommandEntry(
        "commands.setup", "Print the sshd configuration that a login node needs for transport ssh."
    ),
    "uninstall": CommandEntry(
        "commands.setup", "Remove red-box from this host; jobs in Slurm continue to run."
    ),
    "check": CommandEntry("commands.check", "Report every problem of this installation, each with its cure."),
    "recover": CommandEntry("commands.recover", "Rebuild a lost journal from Slurm's records."),
    "token": CommandEntry("commands.tokens", "Manage opaque tokens, for callers without a ServiceAccount."),
    "jobs": CommandEntry("commands.jobs", "List your jobs, or show one.", CLIENT_PANEL),
    "logs": CommandEntry("commands.logs", "Print the output of a job.", CLIENT_PANEL),
    "exec": CommandEntry(
        "commands.sessions.run", "Run a command inside a running job.", CLIENT_PANEL, name="exec_"
    ),
    "shell": CommandEntry("commands.sessions.run", "Open a shell inside a running job.", CLIENT_PANEL),
    "forward": CommandEntry(
        "commands.sessions.ports", "Forward local ports to a running job's node.", CLIENT_PANEL
    ),
    "cancel": CommandEntry("commands.jobs", "Cancel a job.", CLIENT_PANEL),
    "whoami": CommandEntry(
        "commands.cluster", "Show your identity, Unix user and roles at this red-box.", CLIENT_PANEL
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
        """Return a stub with the help line only."""
        del ctx
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        return TyperCommand(
            cmd_name, help=entry.help, hidden=entry.hidden, rich_help_panel=entry.panel or "Commands"
        )

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401 (as above)
        """Import and return the command that is to be run; its words can all be sent."""
        if unreadable := [ascii(word) for word in args if not _is_utf8(word)]:
            raise typer.BadParameter(f"{unreadable[0]} is not in UTF-8")
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name and command else command, rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 (as above)
        """Run the command; that a disk has no room for its output is a sentence."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno not in FULL:
                raise
            message = f"redbox: {error.filename or 'the output'} cannot be written: {error.strerror}"
            typer.echo(printable(message), err=True)
            if sys.stdout is not None and not error.filename:  # what Python still flushes at its end
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from error


def _is_utf8(word: str) -> bool:
    """Python decodes other bytes of the command line to surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in word)


def load(name: str) -> Any:  # noqa: ANN401 (typer's own type for it is private)
    command: typer.Typer | Callable[..., None] = getattr(
        import_program(f"redbox.{COMMANDS[name].module}"), COMMANDS[name].name or name
    )
    if isinstance(command, typer.Typer):
        return typer.main.get_command(command)
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name)(command)
    return typer.main.get_command(single)


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
    """Options before the command."""
