"""What can go wrong with the bed, in words for the person who typed the command.

BedError                 one sentence: what happened, to what, what to do
├── NotPossibleError     this machine or these options cannot carry a bed; nothing was started
├── HostError            a host did not boot, or is not running
├── DaemonError          a daemon did not start, or did not become ready
└── CommandError         a command inside a host failed (carries its output)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class BedError(Exception):
    """One sentence for the user; `log` is where the rest of the story is."""

    def __init__(self, message: str, *, log: Path | str | None = None) -> None:
        super().__init__(message)
        self.log = log


class NotPossibleError(BedError):
    """This machine, or these options, cannot carry a bed; nothing was started."""


class HostError(BedError):
    """A host did not boot, or is not running."""


class DaemonError(BedError):
    """A daemon did not start, or did not become ready."""


class CommandError(BedError):
    """A command inside a host exited with another code than 0, or did not exit in time."""

    def __init__(self, host: str, argv: Sequence[str], code: int | None, stdout: str, stderr: str) -> None:
        ending = "did not end in time" if code is None else f"exited with {code}"
        said = (stderr.strip() or stdout.strip())[-2000:]
        super().__init__(f"{host}: `{' '.join(argv)[:300]}` {ending}" + (f": {said}" if said else ""))
        self.code = code
        self.stdout = stdout
        self.stderr = stderr
