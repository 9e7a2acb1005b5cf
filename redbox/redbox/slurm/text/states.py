"""Slurm's words for where a job is, and how it ended: states, flags, exit codes, signals. Pure.

What they mean to a caller (phases, sentences) is decided in `jobs`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ENDS = (  # from the best to the worst: of an array or a het job the worst counts
    "COMPLETED",
    "CANCELLED",
    "PREEMPTED",
    "DEADLINE",
    "TIMEOUT",
    "NODE_FAIL",
    "BOOT_FAIL",
    "OUT_OF_MEMORY",
    "FAILED",
)
BASES = frozenset({"PENDING", "RUNNING", "SUSPENDED", *ENDS})
FLAGS = frozenset({  # the command-line tools show a flag instead of the base that it hides
    "COMPLETING", "CONFIGURING", "EXPEDITING", "LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL",
    "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "REVOKED", "SIGNALING",
    "SPECIAL_EXIT", "STAGE_OUT", "STOPPED",
})  # fmt: skip
WAITING = frozenset({
    "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD",
    "LAUNCH_FAILED", "REVOKED", "POWER_UP_NODE",
})  # fmt: skip
ENDED_BY_SLURM = frozenset({
    "CANCELLED", "PREEMPTED", "DEADLINE", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL",
})  # fmt: skip
"""The program did not end by itself, so a zero that Slurm shows is no exit code of it."""
INVENTED_ENDS = frozenset({"NODE_FAIL", "BOOT_FAIL", "DEADLINE"})
"""Slurm shows a 1 for them, as the signal (squeue) or as the code (sacct), that nobody's program gave.

So it does for a job that it fails itself before it has a node.
"""
HIGHEST_SIGNAL = 64  # above: Slurm's own, 125 for OUT_OF_MEMORY
CANCELLED_BY = re.compile(r"CANCELLED by ([0-9]+)")
CODE_AND_SIGNAL = re.compile(r"([0-9]+):([0-9]+)")
RAW_STATUS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended: by itself with a code, or by a signal."""

    code: int | None = None
    signal: int | None = None


NO_EXIT = Exit()


def read_state(text: str) -> tuple[str, int | None]:
    """The state without decoration, and the uid of who cancelled it: `CANCELLED by 2001`, `CANCELLED+`."""
    cancelled = CANCELLED_BY.match(text)
    word = text.strip().partition(" ")[0].rstrip("+*").upper()
    return word, int(cancelled[1]) if cancelled else None


def has_ended(state: str) -> bool:
    return state in ENDS


def is_waiting(state: str) -> bool:
    return state in WAITING


def severity(state: str) -> int:
    """How bad an end is; a word that is not known is no end."""
    return ENDS.index(state) if state in ENDS else -1


def read_exit(text: str) -> Exit | None:
    """Both forms: `code:signal`, or the raw wait status (squeue up to 22.05: 256 is exit 1)."""
    pair = CODE_AND_SIGNAL.fullmatch(text)
    if pair is not None:
        return Exit(int(pair[1]), int(pair[2]))
    if RAW_STATUS.fullmatch(text) is None:
        return None
    return from_wait_status(int(text))


def from_wait_status(status: int) -> Exit:
    """A wait status as the kernel has it, or Slurm's own number (4021: a batch step not set up)."""
    signal = status & 0x7F
    return Exit(0, signal) if signal else Exit(status >> 8 & 0xFF, 0)


def end_of(state: str, shown: Exit | None, *, had_nodes: bool = True) -> Exit:
    """The exit code or the signal that a caller may believe.

    None before the end, one of both after it. Where Slurm ended the job, the zero that it shows for the code
    is not the program's; and the numbers that Slurm invents for its own reasons are no signals.
    """
    if shown is None or not has_ended(state):
        return NO_EXIT
    if state == "COMPLETED":
        return Exit(code=0)
    if (state in INVENTED_ENDS or not had_nodes) and 1 in (shown.code, shown.signal):
        return NO_EXIT
    if shown.signal:
        return Exit(signal=shown.signal if shown.signal <= HIGHEST_SIGNAL else None)
    if shown.code == 0 and (state in ENDED_BY_SLURM or state == "OUT_OF_MEMORY"):
        return NO_EXIT
    return Exit(code=shown.code)
