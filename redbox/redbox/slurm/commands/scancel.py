"""scancel: cancels or signals one job, if it is still this user's job of this name.

For ids that are unknown or filtered out it prints nothing and exits with 0, so the caller reads the job back.
"""

from __future__ import annotations

import re
import signal as signals

from redbox.slurm.errors import RequestRefused

NAMES = frozenset(name.removeprefix("SIG") for name in signals.Signals.__members__)
STOP, UPDATE = "TERM", "URG"
"""To a pod's runner. The second is ignored by a program that does not handle it."""
NUMBER = re.compile(r"[1-9]|[1-5][0-9]|6[0-4]")


def cancel_argv(job_id: str, user: str, name: str) -> list[str]:
    """The id of an array or of a het job's leader cancels all parts."""
    return ["scancel", *_filters(user, name), job_id]


def cancel_task_argv(task_id: str) -> list[str]:
    """Without filters: beside them `scancel 7_3` cancels all tasks that still wait in one record, 7_[2-9]."""
    return ["scancel", task_id]


def signal_argv(job_id: str, user: str, name: str, signal_name: str) -> list[str]:
    """With --full the batch script, its steps and all their children get the signal."""
    return ["scancel", f"--signal={read_signal(signal_name)}", "--full", *_filters(user, name), job_id]


def runner_argv(job_id: str, user: str, name: str, signal_name: str) -> list[str]:
    """With --batch the batch script alone gets the signal: what it started is for it to stop."""
    return ["scancel", f"--signal={signal_name}", "--batch", *_filters(user, name), job_id]


def _filters(user: str, name: str) -> list[str]:
    return [f"--user={user}", *([f"--name={name}"] if name else [])]


def read_signal(text: str) -> str:
    """A signal's name without SIG, or its number, as scancel takes it."""
    name = text.upper().removeprefix("SIG")
    if name not in NAMES and NUMBER.fullmatch(name) is None:
        raise RequestRefused(f"signal: {text!r} is not a signal: give a name (USR1, TERM) or a number.")
    return name
