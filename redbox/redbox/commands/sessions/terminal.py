"""The terminal that a session command runs in: raw keys, its size and its kind."""

from __future__ import annotations

import os
import re
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from redbox_api.sessions.parts import TerminalSize


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Each key goes to the job, Ctrl-C too; afterwards the terminal is as it was."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def own_size() -> TerminalSize | None:
    try:
        columns, rows = os.get_terminal_size(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):  # AttributeError: of a stdin that is closed
        return None
    return TerminalSize(columns=columns, rows=rows) if columns and rows else None


def own_term() -> str | None:
    term = os.environ.get("TERM", "")
    return term if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", term) else None
