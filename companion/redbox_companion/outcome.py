"""How the companion ends: the exit code that stands for the job's end, and the word it leaves behind.

| the job | exit code |
|---|---|
| ended with code n | n |
| was ended by signal n | 128 + n |
| TIMEOUT, DEADLINE | 124, as timeout(1) has it |
| OUT_OF_MEMORY | 137, as a container that was |
| CANCELLED | 143, as one that was told to end |
| NODE_FAIL, BOOT_FAIL, PREEMPTED | 75: trying again may help |
| lost: its outcome is unknown | 70 |
| was never submitted: red-box or Slurm refused it | 65, and 77 where the caller may not |
| the pod was made wrong | 78 |
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FINAL = frozenset({"Succeeded", "Failed", "Cancelled", "Lost"})
BY_STATE = {
    "TIMEOUT": 124,
    "DEADLINE": 124,
    "OUT_OF_MEMORY": 137,
    "NODE_FAIL": 75,
    "BOOT_FAIL": 75,
    "PREEMPTED": 75,
}
CANCELLED = 143
LOST = 70
REFUSED = 65
NOT_ALLOWED = 77
BAD_SETTINGS = 78
TERMINATION_BYTES = 4000  # the kubelet cuts at 4096


def exit_code_of(job: Mapping[str, Any]) -> int:
    """The exit code that stands for this end; `job` is red-box's answer."""
    phase, state = job.get("phase"), job.get("state") or ""
    if phase == "Succeeded":
        return 0
    if phase == "Lost":
        return LOST
    if phase == "Cancelled":
        return CANCELLED
    if state in BY_STATE:
        return BY_STATE[state]
    code, signal = job.get("exitCode"), job.get("signal")
    if signal:
        return (128 + int(signal)) & 0xFF
    return (int(code) & 0xFF) or 1 if code is not None else 1


def word_of(job: Mapping[str, Any], *, logs: str, exit_code: int) -> dict[str, Any]:
    """What the operator reads from the pod's termination message."""
    return {
        "final": True,
        "logs": logs,
        "exitCode": exit_code,
        "jobID": job.get("jobID"),
        "phase": job.get("phase"),
        "state": job.get("state"),
    }


def word_of_refusal(explanation: str, *, status: int) -> dict[str, Any]:
    """The same where there never was a job."""
    return {"final": True, "logs": "none", "refused": explanation[:2000], "status": status}


def leave_word(path: Path, word: Mapping[str, Any]) -> None:
    """Write the termination message; where that cannot be done, the log has said it already."""
    text = json.dumps(word)
    try:
        path.write_text(
            text if len(text) <= TERMINATION_BYTES else json.dumps({**word, "refused": "see the log"})
        )
    except OSError:
        return
