"""What can go wrong with the bed, in words for the person who typed the command.

BedError                 one sentence: what happened, to what, what to do
├── NotPossibleError     this machine or these options cannot carry a bed; nothing was started
├── RootUnavailableError a root of Debian's unstable does not install, and none is in the cache
├── HostError            a host did not boot, or is not running
├── DaemonError          a daemon did not start, or did not become ready
└── CommandError         a command inside a host failed (carries its output)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_END_BYTES = 4000
_END_LINES = 10


class BedError(Exception):
    """One sentence for the user; `log` is where the rest of the story is, whose end is the error's note."""

    def __init__(self, message: str, *, log: Path | str | None = None) -> None:
        super().__init__(message)
        self.log = log
        if log is not None:
            self.add_note(_end_of(Path(log)))


def _end_of(log: Path) -> str:
    """What it says last; the file may be gone with its host."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _END_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return str(error)
    return "\n".join(f"  | {line}" for line in lines[-_END_LINES:]) or "  (it said nothing)"


class NotPossibleError(BedError):
    """This machine, or these options, cannot carry a bed; nothing was started."""


class RootUnavailableError(BedError):
    """Debian's unstable has moved on or is away, and no root of before is in the cache."""


class HostError(BedError):
    """A host did not boot, or is not running."""


class DaemonError(BedError):
    """A daemon did not start, or did not become ready."""


class CommandError(BedError):
    """A command inside a host exited with another code than 0, or did not exit in time."""

    def __init__(self, host: str, argv: Sequence[str], code: int | None, stdout: str, stderr: str) -> None:
        ending = "did not end in time" if code is None else f"exited with {code}"
        output = (stderr.strip() or stdout.strip())[-2000:]
        super().__init__(f"{host}: `{' '.join(argv)[:300]}` {ending}" + (f": {output}" if output else ""))
        self.code = code
        self.stdout = stdout
        self.stderr = stderr
