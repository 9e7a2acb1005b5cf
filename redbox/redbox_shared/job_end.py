"""How the pod of a job ends: its exit code, and the termination message that the operator reads.

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

A pod that only collects results ends with 74 where it could not. docs/reference-companion.md describes all.
"""

from __future__ import annotations

import json

from redbox_shared.wire import LAUNCH_FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SUCCEEDED, FAILED, CANCELLED, LOST = "Succeeded", "Failed", "Cancelled", "Lost"
FINAL_PHASES = frozenset({SUCCEEDED, FAILED, CANCELLED, LOST})
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
    """As JSON of at most 4096 bytes: the longest text is halved until it fits."""
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
