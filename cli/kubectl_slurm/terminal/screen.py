"""The terminal, if there is one: its width, its colours, and text that cannot change it.

Without a terminal nothing is cut and nothing has a colour, so that programs read what people see.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TextIO

from redbox_shared.printable import printable

CLEAR = "\x1b[H\x1b[J"
RESET = "\x1b[0m"
COLOURS = {"red": "\x1b[31m", "green": "\x1b[32m", "yellow": "\x1b[33m", "dim": "\x1b[2m", "bold": "\x1b[1m"}
OWN = frozenset({RESET, *COLOURS.values()})
OWN_PARTS = re.compile(f"({'|'.join(map(re.escape, sorted(OWN)))})")
NARROWEST = 20
Paint = Callable[[str, str], str]


@dataclass(frozen=True)
class Screen:
    """Where a command writes to."""

    out: TextIO
    is_terminal: bool
    width: int | None
    """Columns; None: unlimited."""
    has_colours: bool
    height: int | None = None
    """Lines; None: unlimited."""

    def write(self, text: str) -> None:
        """Lines; each ends with a newline. Nothing in them controls the terminal, but our own colours."""
        parts = (part if part in OWN else printable(part, lines=True) for part in OWN_PARTS.split(text))
        self.out.write("".join(parts) + ("" if text.endswith("\n") or not text else "\n"))
        self.out.flush()

    def clear(self) -> None:
        """Before a screen that shows the newest state."""
        self.out.write(CLEAR)

    def paint(self, text: str, colour: str) -> str:
        return f"{COLOURS[colour]}{text}{RESET}" if self.has_colours and colour else text


def screen_of(out: TextIO, environment: Mapping[str, str]) -> Screen:
    """NO_COLOR and TERM=dumb have no colours; COLUMNS counts before the terminal's own size."""
    is_terminal = out.isatty()
    size = shutil.get_terminal_size((80, 24)) if is_terminal else None
    width = max(NARROWEST, size.columns) if size else None
    plain = environment.get("NO_COLOR") or environment.get("TERM", "dumb") == "dumb"
    return Screen(out, is_terminal, width, is_terminal and not plain, size.lines if size else None)


def note(text: str) -> None:
    """A sentence beside the output, which programs do not read; strangers may have written parts of it."""
    sys.stderr.write(f"{printable(text, lines=True)}\n")
    sys.stderr.flush()


def confirmed(question: str) -> bool:
    """The answer of the person at the terminal; the end of its input is a no."""
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def one_line(text: object) -> str:
    """In one printable line: names and messages come from strangers."""
    return printable(" ".join(str(text).split()))


def silence(out: TextIO | None) -> None:
    """After a broken pipe or a full disk: what Python still flushes at its end goes nowhere."""
    if out is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, out.fileno())
