"""`redbox token`: opaque tokens, for callers without a ServiceAccount."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer

from redbox.agents.errors import AgentError
from redbox.callers.errors import TokenFileError, TokenNotFound
from redbox.callers.tokens.opaque_tokens import TokenRecord, TokenStore
from redbox.callers.unix_accounts import NssLookup
from redbox.commands.config_option import ConfigOption
from redbox.commands.exit_codes import exit_with, say
from redbox.commands.output import Columns, OutputFormat, OutputOption, show_list
from redbox.core.clock import SystemClock
from redbox.core.durations import Duration
from redbox.core.yaml_document import DocumentError
from redbox.settings import SETTINGS_FILE, load_settings
from redbox.setup.checks.observed_node import observed_node

token = typer.Typer(
    name="token",
    help="Manage opaque tokens, for callers without a ServiceAccount. Run it as root or the account redbox.",
    no_args_is_help=True,
    add_completion=False,
)
COLUMNS: Columns = {
    key.upper(): itemgetter(key) for key in ("id", "user", "state", "created", "expires", "note")
}


@token.command()
def create(
    *,
    user: Annotated[str, typer.Option(help="The Unix user of its holder.")],
    expires: Annotated[str, typer.Option(help="How long it is valid: 12h, 30d.")],
    note: Annotated[str, typer.Option(help="Its purpose, shown in the list.")] = "",
    config: ConfigOption = SETTINGS_FILE,
) -> None:
    """Create a token for a Unix user, and print it. It is printed only once: red-box stores a hash."""
    _require_user(user, config)
    with _store(config) as store:
        try:
            created = store.create(user, Duration.parse(expires), note=note)
        except ValueError as error:
            exit_with(str(error))
    say(f"Token {created.record.id} of {user}, valid until {_time(created.record.expires_at)}:", err=True)
    say(created.secret)


@token.command(name="list")
def list_tokens(*, output: OutputOption = OutputFormat.TABLE, config: ConfigOption = SETTINGS_FILE) -> None:
    """List all tokens, also expired and revoked ones."""
    now = datetime.now(UTC).timestamp()
    with _store(config) as store:
        show_list([_row(record, now) for record in store.list()], COLUMNS, output)


@token.command()
def revoke(
    identifier: Annotated[str, typer.Argument(metavar="ID", help="The id that `redbox token list` shows.")],
    *,
    config: ConfigOption = SETTINGS_FILE,
) -> None:
    """Revoke a token, at once and for ever."""
    with _store(config) as store:
        try:
            record = store.revoke(identifier)
        except TokenNotFound as error:
            exit_with(str(error))
    say(f"Token {record.id} of {record.user} is revoked.")


def _require_user(user: str, config: Path) -> None:
    try:
        settings = load_settings(config)
        if settings.agents.accounts_on_login_node:
            with observed_node(settings) as node:
                account, where = node.account(user), node.where
        else:
            account, where = NssLookup().account(user), "this host"
    except (DocumentError, AgentError, OSError) as error:
        exit_with(str(error))
    if account is None:
        exit_with(f"there is no user {user!r} on {where}")


@contextmanager
def _store(config: Path) -> Iterator[TokenStore]:
    try:
        yield TokenStore(load_settings(config).callers.tokens_file, SystemClock())
    except (DocumentError, TokenFileError) as error:
        exit_with(str(error))


def _row(record: TokenRecord, now: float) -> dict[str, str]:
    """Return a row without the digest, which is secret."""
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
