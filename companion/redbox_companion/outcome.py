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

A pod that only collects results ends with 74 where it could not. docs/reference-companion.md has the whole.
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
REFUSED = 65
LOST = 70
RESULTS_FAILED = 74
NOT_ALLOWED = 77
BAD_SETTINGS = 78
CANCELLED = 143
WORD_BYTES = 4096  # the kubelet cuts what is longer, and half a JSON document says nothing


def exit_code_of(job: Mapping[str, Any]) -> int:
    """The exit code that stands for this end; `job` is red-box's answer."""
    by_phase = {"Succeeded": 0, "Lost": LOST, "Cancelled": CANCELLED}.get(job["phase"])
    if by_phase is not None:
        return by_phase
    by_state = BY_STATE.get(str(job.get("state")))
    if by_state is not None:
        return by_state
    code, signal = job.get("exitCode"), job.get("signal")
    if isinstance(signal, int) and signal:
        return (128 + signal) & 0xFF
    return (code & 0xFF) or 1 if isinstance(code, int) else 1


def sentence_of(job: Mapping[str, Any]) -> str | None:
    """Red-box's sentence about this end; None where the job's own exit code says it all."""
    own_code = job.get("exitCode") is not None and not job.get("signal")
    told_by_code = job.get("state") == "COMPLETED" or (job.get("state") == "FAILED" and own_code)
    return str(job["message"]) if job.get("message") and not told_by_code else None


def word_of(job: Mapping[str, Any], **more: object) -> dict[str, Any]:
    """What the operator reads from the pod's termination message; what is not known is left out."""
    seen = {name: job.get(name) for name in ("phase", "state", "exitCode", "signal", "jobID")}
    word = {"final": True, **seen, **more}
    return {name: value for name, value in word.items() if value is not None}


def word_of_refusal(sentence: str, *, problem: str) -> dict[str, Any]:
    """The same where there is no job; `problem` is the type of red-box's problem document."""
    return {"refused": sentence, "type": problem}


def leave_word(path: Path, word: Mapping[str, Any]) -> None:
    """Write the termination message; where that cannot be done, the log has said it already."""
    try:
        path.write_bytes(fitted(word))
    except OSError:
        return


def fitted(word: Mapping[str, Any]) -> bytes:
    """As JSON of at most 4096 bytes: the longest sentence is cut until it is."""
    while len(raw := json.dumps(word).encode()) > WORD_BYTES:
        longest = max(word, key=lambda name: len(word[name]) if isinstance(word[name], str) else 0)
        word = {**word, longest: word[longest][: len(word[longest]) // 2]}
    return raw
