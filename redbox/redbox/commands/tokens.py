"""`redbox token`: opaque tokens, for callers that have no ServiceAccount. For root, or the account redbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from redbox.callers.tokens.opaque_tokens import NoSuchToken, TokenFileError, TokenRecord, TokenStore
from redbox.callers.unix_accounts import HostAccounts
from redbox.commands.exit_codes import exit_with
from redbox.commands.output import Columns, OutputFormat, OutputOption, show_list
from redbox.core.clock import SystemClock
from redbox.core.durations import Duration
from redbox.core.yaml_document import DocumentError
from redbox.settings import SETTINGS_FILE, load_settings

token = typer.Typer(
    name="token",
    help="Opaque tokens, for callers that have no ServiceAccount. Run it as root or as the account redbox.",
    no_args_is_help=True,
    add_completion=False,
)
ConfigOption = Annotated[Path, typer.Option("--config", help="The settings.", envvar="REDBOX_CONFIG")]
COLUMNS: Columns = {
    "ID": lambda shown: shown["id"],
    "USER": lambda shown: shown["user"],
    "STATE": lambda shown: shown["state"],
    "CREATED": lambda shown: shown["created"],
    "EXPIRES": lambda shown: shown["expires"],
    "NOTE": lambda shown: shown["note"],
}


@token.command()
def create(
    *,
    user: Annotated[str, typer.Option(help="The Unix user that its holder is.")],
    expires: Annotated[str, typer.Option(help="How long it is good: 12h, 30d.")],
    note: Annotated[str, typer.Option(help="What it is for, for those who read the list.")] = "",
    config: ConfigOption = SETTINGS_FILE,
) -> None:
    """Make a token for a Unix user, and print it: it is shown this once, and kept only as a hash."""
    if HostAccounts().account(user) is None:
        exit_with(f"this host has no user {user!r}")
    with _store(config) as store:
        try:
            made = store.create(user, Duration.parse(expires), note=note)
        except ValueError as error:
            exit_with(str(error))
    typer.echo(f"Token {made.record.id} of {user}, good until {_time(made.record.expires_at)}:", err=True)
    typer.echo(made.secret)


@token.command(name="list")
def list_tokens(*, output: OutputOption = OutputFormat.TABLE, config: ConfigOption = SETTINGS_FILE) -> None:
    """List all tokens, the expired and the revoked too."""
    now = datetime.now(UTC).timestamp()
    with _store(config) as store:
        show_list([_shown(record, now) for record in store.list()], COLUMNS, output)


@token.command()
def revoke(
    identifier: Annotated[str, typer.Argument(metavar="ID", help="As `redbox token list` shows it.")],
    *,
    config: ConfigOption = SETTINGS_FILE,
) -> None:
    """Make a token worthless, at once and for ever."""
    with _store(config) as store:
        try:
            record = store.revoke(identifier)
        except NoSuchToken as error:
            exit_with(str(error))
    typer.echo(f"Token {record.id} of {record.user} is revoked.")


@contextmanager
def _store(config: Path) -> Iterator[TokenStore]:
    try:
        yield TokenStore(load_settings(config).callers.tokens_file, SystemClock())
    except (DocumentError, TokenFileError) as error:
        exit_with(str(error))


def _shown(record: TokenRecord, now: float) -> dict[str, str]:
    """Without its digest, which is nobody's to see."""
    state = "revoked" if record.revoked_at else "expired" if record.expires_at <= now else "good"
    return {
        "id": record.id,
        "user": record.user,
        "state": state,
        "created": _time(record.created_at),
        "expires": _time(record.expires_at),
        "note": record.note,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
