"""How a command ends: with one sentence and a status that scripts can tell apart.

0   it was done
1   no: refused, not found, or something is wrong
2   the command line itself is wrong
69  nobody answers
75  not now: trying again later is right
77  the caller may not
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from redbox_api.errors import Busy, NotAllowed, NotAuthenticated, RedboxError, Refused, Unreachable

FAILURE = 1
UNAVAILABLE = os.EX_UNAVAILABLE
TEMPORARY_FAILURE = os.EX_TEMPFAIL
NOT_ALLOWED = os.EX_NOPERM

STATUSES: dict[type[RedboxError], int] = {
    Unreachable: UNAVAILABLE,
    Busy: TEMPORARY_FAILURE,
    NotAuthenticated: NOT_ALLOWED,
    NotAllowed: NOT_ALLOWED,
    Refused: FAILURE,
    RedboxError: FAILURE,
}


def exit_with(sentence: str, status: int = FAILURE) -> NoReturn:
    """Say it on stderr, and end."""
    typer.echo(f"redbox: {sentence}", err=True)
    raise typer.Exit(status)


@contextmanager
def exit_on_error() -> Iterator[None]:
    """What red-box refuses, as one sentence and a status."""
    try:
        yield
    except RedboxError as error:
        status = next(status for kind, status in STATUSES.items() if isinstance(error, kind))
        exit_with(_sentence(error), status)


def _sentence(error: RedboxError) -> str:
    if not isinstance(error, Refused):
        return str(error)
    when = f" (try again in {error.retry_after:.0f} s)" if error.retry_after else ""
    return f"{error.problem.detail}{when}"
