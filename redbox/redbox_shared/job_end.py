"""How a job ends, and its pod: which states are an end, the exit code, the message that the operator reads.

A companion ends so, and so does a pod on a virtual node, which has no process.

| the job | exit code |
|---|---|
| ended with code n | n |
| was ended by signal n | 128 + n |
| TIMEOUT, DEADLINE | 124, as of timeout(1) |
| OUT_OF_MEMORY | 137, as of a container that was killed for it |
| CANCELLED | 143, as of a process that got SIGTERM |
| NODE_FAIL, BOOT_FAIL, PREEMPTED, LaunchFailed | 75: another attempt may succeed |
| is lost: its outcome is unknown | 70 |
| was never submitted: red-box or Slurm refused it | 65, or 77 where the caller is not allowed to |
| the pod's settings are wrong | 78 |

A helper pod ends with 74 where it could not collect the results. docs/reference/companion.md describes all.
"""

from __future__ import annotations

import json

from redbox_shared.printable import printable_texts
from redbox_shared.wire import LAUNCH_FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PENDING, RUNNING, SUSPENDED = "Pending", "Running", "Suspended"
SUCCEEDED, FAILED, CANCELLED, LOST = "Succeeded", "Failed", "Cancelled", "Lost"
FINAL_PHASES = frozenset({SUCCEEDED, FAILED, CANCELLED, LOST})

PHASE_BY_STATE: Mapping[str, str] = {
    # Base states, and flags, which the command-line tools show in their place.
    "PENDING": PENDING,
    "CONFIGURING": PENDING,
    "EXPEDITING": PENDING,  # 25.11: after --requeue=expedite, until the next run is launched
    "LAUNCH_FAILED": PENDING,
    "POWER_UP_NODE": PENDING,
    "REQUEUED": PENDING,
    "REQUEUE_FED": PENDING,
    "RESV_DEL_HOLD": PENDING,
    "REVOKED": PENDING,
    "RUNNING": RUNNING,
    "COMPLETING": RUNNING,
    "RECONFIG_FAIL": RUNNING,
    "RESIZING": RUNNING,
    "SIGNALING": RUNNING,
    "STAGE_OUT": RUNNING,
    "SUSPENDED": SUSPENDED,
    "STOPPED": SUSPENDED,
    "REQUEUE_HOLD": SUSPENDED,
    "SPECIAL_EXIT": SUSPENDED,
    # Ends, from the best to the worst: of an array or a het job the worst counts.
    "COMPLETED": SUCCEEDED,
    "CANCELLED": CANCELLED,
    "PREEMPTED": FAILED,
    "DEADLINE": FAILED,
    "TIMEOUT": FAILED,
    "NODE_FAIL": FAILED,
    "BOOT_FAIL": FAILED,
    "OUT_OF_MEMORY": FAILED,
    "FAILED": FAILED,
}
"""Slurm's states and the phase of a job in each: the only table, also of red-box, which decides by it."""
EXIT_REFUSED = 65
EXIT_LOST = 70
EXIT_RESULTS_FAILED = 74
EXIT_TRY_AGAIN = 75
EXIT_NOT_ALLOWED = 77
EXIT_BAD_SETTINGS = 78
EXIT_CANCELLED = 143
EXIT_BY_PHASE = {SUCCEEDED: 0, LOST: EXIT_LOST, CANCELLED: EXIT_CANCELLED}
EXIT_BY_STATE = {
    "TIMEOUT": 124,
    "DEADLINE": 124,
    "OUT_OF_MEMORY": 137,
    "NODE_FAIL": EXIT_TRY_AGAIN,
    "BOOT_FAIL": EXIT_TRY_AGAIN,
    "PREEMPTED": EXIT_TRY_AGAIN,
}
BEYOND_SIGNALS = 128
LOST_AFTER_S = 600
"""How long red-box may have no record of a submitted job before that job counts as lost."""
MESSAGE_BYTES = 4096  # the kubelet cuts a longer one, and half a JSON document is unreadable
FIELD_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("state", "reason", "message", "jobID", "startedAt", "workingDirectory"), str),
    **dict.fromkeys(("exitCode", "signal"), int),
    **dict.fromkeys(("array", "pod"), dict),
    **dict.fromkeys(("tasks", "warnings"), list),
}
SIGNS_OF_SUBMIT = ("jobID", "startedAt", "nodes")
CONTRADICTION = "Contradiction"
"""Reason of a job whose row says that it has ended, and shows that it lives."""


def contradiction(job: Mapping[str, Any]) -> str:
    """What of this row, as in red-box's JSON, speaks against the end that its phase says; empty: nothing.

    A lost job has no end in Slurm, and one that was cancelled before its submit has no state. A pod's end is
    that of its containers, whatever Slurm calls the job, which it may have lost while it ran. A state that is
    not in the table is of a newer Slurm and red-box, and decides nothing.
    """
    phase, state = job["phase"], job.get("state")
    if phase not in FINAL_PHASES or phase == LOST:
        return ""
    if job.get("isPod") and (job.get("pod") or {}).get("done"):
        return ""
    if not state and phase == CANCELLED and not any(map(job.get, SIGNS_OF_SUBMIT)):
        return ""
    by_state = PHASE_BY_STATE.get(state, phase) if state else None
    exit_code, signal = job.get("exitCode"), job.get("signal")
    against = ""
    if by_state is None:
        against = "it has no state in Slurm"
    elif by_state not in FINAL_PHASES or (phase == SUCCEEDED) != (by_state == SUCCEEDED):
        against = f"its state in Slurm is {state}"
    elif running := (job.get("array") or {}).get("running"):
        against = f"{running} of its tasks run"
    elif phase == SUCCEEDED and (exit_code or signal):
        against = f"its exit code is {exit_code or 0}, its signal {signal or 'none'}"
    return against and f"its phase is {phase}, but {against}"


def is_job(document: Mapping[str, Any], key: str, attempt: int) -> bool:
    """Whether a document from outside is the row of this attempt, with values of the right types."""
    if (document.get("key"), document.get("attempt")) != (key, attempt):
        return False
    return isinstance(document.get("phase"), str) and all(
        document.get(name) is None or isinstance(document[name], kind) for name, kind in FIELD_TYPES.items()
    )


def has_ended(job: Mapping[str, Any]) -> bool:
    """Whether its phase is an end, and nothing speaks against it."""
    return job["phase"] in FINAL_PHASES and not contradiction(job)


def living_phase(job: Mapping[str, Any]) -> str:
    """The phase that a row in contradiction counts as: that of Slurm's state, if it lives by that."""
    phase = PHASE_BY_STATE.get(job.get("state") or "", LOST)
    if phase in FINAL_PHASES:
        return RUNNING if job.get("startedAt") else PENDING
    return phase


def contradiction_message(why: str) -> str:
    """The sentence for the user."""
    return (
        f"Red-box's answer about this job contradicts itself: {why}. The job is followed, and not taken for "
        "ended, until an answer shows its end"
    )


class JobEnd:
    """A job that has ended, as red-box describes it."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        """`job` as in red-box's JSON."""
        self.phase: str = job["phase"]
        self.state: str | None = job.get("state")
        self.reason: str | None = job.get("reason")
        self.exit_code: int | None = job.get("exitCode")
        self.signal: int | None = job.get("signal")
        self.job_id: str | None = job.get("jobID")
        self.message: str | None = job.get("message")

    def pod_exit_code(self) -> int:
        if self.phase in EXIT_BY_PHASE:
            return EXIT_BY_PHASE[self.phase]
        if self.reason == LAUNCH_FAILED:
            return EXIT_TRY_AGAIN
        if self.state in EXIT_BY_STATE:
            return EXIT_BY_STATE[self.state]
        if isinstance(self.signal, int) and self.signal:
            return (BEYOND_SIGNALS + self.signal) & 0xFF
        return (self.exit_code & 0xFF if isinstance(self.exit_code, int) else 0) or 1

    def explanation(self) -> str | None:
        """Red-box's sentence about this end; None where the job's own exit code is enough."""
        own_code = self.exit_code is not None and not self.signal
        if self.state == "COMPLETED" or (self.state == "FAILED" and own_code):
            return None
        return self.message or None

    def termination_message(self, **more: object) -> dict[str, Any]:
        """Fields of the termination message; unknown ones are left out."""
        fields = {
            "final": True,
            "phase": self.phase,
            "state": self.state,
            "exitCode": self.exit_code,
            "signal": self.signal,
            "jobID": self.job_id,
            **more,
        }
        return {name: value for name, value in fields.items() if value is not None}


def refusal_message(sentence: str, *, problem_type: str) -> dict[str, Any]:
    """The termination message where there is no job; `problem_type` is of red-box's problem document."""
    return {"refused": sentence, "type": problem_type}


def encode_message(message: Mapping[str, Any]) -> bytes:
    """As JSON of at most 4096 bytes, its texts printable: the longest is halved until it fits."""
    message = printable_texts(dict(message))
    while len(raw := json.dumps(message).encode()) > MESSAGE_BYTES:
        message = _shortened(message)
    return raw


def _shortened(message: Mapping[str, Any]) -> dict[str, Any]:
    """By what each takes as JSON: a letter may be twelve bytes."""
    sizes = {
        name: len(json.dumps(value)) for name, value in message.items() if isinstance(value, (str, dict))
    }
    longest = max(sizes, key=lambda name: sizes[name])
    value = message[longest]
    shorter = _shortened(value) if isinstance(value, dict) else value[: len(value) // 2]
    return {**message, longest: shorter}
