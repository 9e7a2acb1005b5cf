"""What commands say, and their exit statuses, for scripts. A failure also prints one sentence on stderr.

0   success
1   rejected, not found, or failed
2   the command line is wrong
69  red-box does not answer
75  temporary failure: try again later
77  the caller is not allowed
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from redbox_api.errors import Busy, NotAllowed, NotAuthenticated, RedboxError, Refused, Unreachable
from redbox_shared.printable import printable

FAILURE = 1
STATUSES: dict[type[RedboxError], int] = {
    Unreachable: os.EX_UNAVAILABLE,
    Busy: os.EX_TEMPFAIL,
    NotAuthenticated: os.EX_NOPERM,
    NotAllowed: os.EX_NOPERM,
}


def say(text: str, *, err: bool = False) -> None:
    """Print lines: everything that a command prints, but the bytes of jobs and tables on a terminal."""
    typer.echo(printable(text, lines=True), err=err)


def exit_with(sentence: str, status: int = FAILURE) -> NoReturn:
    """Print a sentence on stderr and exit."""
    say(f"redbox: {sentence}", err=True)
    raise typer.Exit(status)


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn a RedboxError into a sentence on stderr and an exit status."""
    try:
        yield
    except RedboxError as error:
        status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), FAILURE)
        sentence = error.problem.detail if isinstance(error, Refused) else str(error)
        if isinstance(error, Refused) and error.retry_after:
            sentence += f" (try again in {error.retry_after:.0f} s)"
        exit_with(sentence, status)
