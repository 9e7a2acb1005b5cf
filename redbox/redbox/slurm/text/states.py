"""Slurm's states and what they mean, exit codes, signals. Pure.

Their table is `redbox_shared.job_end`; `jobs` receives it through the workload manager (`states`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from redbox.core.workload_manager import JobStates
from redbox_api.models import FINAL_PHASES, Phase
from redbox_shared.job_end import PHASE_BY_STATE
from redbox_shared.wire import HELD_BY_SLURM, HELD_REASONS

PHASES: Mapping[str, Phase] = {state: Phase(phase) for state, phase in PHASE_BY_STATE.items()}
JOB_STATES = JobStates(
    PHASES,
    requeued=frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL"}),
    held_reasons=HELD_REASONS | HELD_BY_SLURM,
    held_between_runs=frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT"}),
)
has_not_begun = JOB_STATES.has_not_begun
ENDS = tuple(state for state, phase in PHASES.items() if phase in FINAL_PHASES)
ENDED_BY_SLURM = frozenset({
    "CANCELLED", "PREEMPTED", "DEADLINE", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL",
})  # fmt: skip
"""The program did not end by itself, so a zero that Slurm shows is not its exit code."""
INVENTED_ENDS = frozenset({"NODE_FAIL", "BOOT_FAIL", "DEADLINE"})
"""Slurm shows a 1 for them, as the signal (squeue) or as the code (sacct), that no program returned.

So it does for a job that it fails itself before it has a node.
"""
HIGHEST_SIGNAL = 64  # above: Slurm's own, 125 for OUT_OF_MEMORY
CANCELLED_BY = re.compile(r"CANCELLED by ([0-9]{1,10})")
CODE_AND_SIGNAL = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
RAW_STATUS = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended: by itself with a code, or by a signal."""

    code: int | None = None
    signal: int | None = None


NO_EXIT = Exit()


def read_state(text: str) -> tuple[str, int | None]:
    """The state without decoration (`CANCELLED+`), and who cancelled it (`CANCELLED by 2001`)."""
    cancelled = CANCELLED_BY.match(text)
    word = text.strip().partition(" ")[0].rstrip("+*").upper()
    return word, int(cancelled[1]) if cancelled else None


def has_ended(state: str) -> bool:
    return state in ENDS


def is_waiting(state: str) -> bool:
    """Whether it is pending; a job that is held after a requeue is paused."""
    return PHASES.get(state) is Phase.PENDING


def severity(state: str) -> int:
    """How bad an end is; -1 for a state that does not end a job."""
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
    """The exit code or the signal of the program, as far as Slurm shows it.

    Neither before the end, one of both after it. If Slurm ended the job, the zero that it shows for the code
    is not the program's, and the numbers that Slurm invents for its own reasons are not signals.
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
