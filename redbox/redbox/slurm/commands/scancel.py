"""scancel: ends or signals one job, and only if it is still this user's job of this name.

It is silent, with exit code 0, about ids that are unknown or filtered out: what it did is read back.
"""

from __future__ import annotations

import re
import signal as signals

from redbox.slurm.errors import RequestRefused

NAMES = frozenset(name.removeprefix("SIG") for name in signals.Signals.__members__)
NUMBER = re.compile(r"[1-9]|[1-5][0-9]|6[0-4]")


def cancel(job_id: str, user: str, name: str) -> list[str]:
    """An array's base id and a het job's leader stand for all of it."""
    return ["scancel", *_only(user, name), job_id]


def signal(job_id: str, user: str, name: str, signal_name: str) -> list[str]:
    """--full: the batch script, its steps and all their children, whichever of them waits for the signal."""
    return ["scancel", f"--signal={read_signal(signal_name)}", "--full", *_only(user, name), job_id]


def _only(user: str, name: str) -> list[str]:
    return [f"--user={user}", *([f"--name={name}"] if name else [])]


def read_signal(text: str) -> str:
    """A signal's name without SIG, or its number, as scancel takes it."""
    name = text.upper().removeprefix("SIG")
    if name not in NAMES and NUMBER.fullmatch(name) is None:
        raise RequestRefused(f"signal: {text!r} is no signal: give a name (USR1, TERM) or a number.")
    return name
