"""How a job's end is told by its pod: an exit code, and the word that the operator reads.

The same as a companion with a container tells (`redbox_companion.outcome`, which may import nothing): a test
holds the two together.

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
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from redbox_api.errors import NotAllowed, NotAuthenticated, Refused
from redbox_api.models import FINAL_PHASES, Job, Phase

BY_STATE = {
    "TIMEOUT": 124,
    "DEADLINE": 124,
    "OUT_OF_MEMORY": 137,
    "NODE_FAIL": 75,
    "BOOT_FAIL": 75,
    "PREEMPTED": 75,
}
BY_PHASE = {Phase.SUCCEEDED: 0, Phase.LOST: 70, Phase.CANCELLED: 143}
REFUSED = 65
NOT_ALLOWED = 77
BEYOND_SIGNALS = 128
LONGEST_WORD = 4096


@dataclass(frozen=True)
class Refusal:
    """Why there never was a job: red-box's sentence, and its type."""

    sentence: str
    type: str = "about:blank"
    exit_code: int = REFUSED

    @classmethod
    def by(cls, refused: Refused) -> Refusal:
        """What red-box answered."""
        denied = isinstance(refused, NotAllowed | NotAuthenticated)
        return cls(str(refused), refused.problem.type, NOT_ALLOWED if denied else REFUSED)

    def word(self) -> str:
        """For the operator."""
        sentence = self.sentence
        while len(word := json.dumps({"refused": sentence, "type": self.type[:256]})) > LONGEST_WORD:
            sentence = sentence[: len(sentence) // 2]
        return word


def exit_code_of(job: Job) -> int:
    """The exit code that stands for this end."""
    if job.phase in BY_PHASE:
        return BY_PHASE[job.phase]
    if job.state in BY_STATE:
        return BY_STATE[job.state]
    if job.signal:
        return (BEYOND_SIGNALS + job.signal) & 0xFF
    return ((job.exit_code or 0) & 0xFF) or 1


def sentence_of(job: Job) -> str | None:
    """Red-box's sentence about this end; None where the job's own exit code says it all."""
    own_code = job.exit_code is not None and not job.signal
    told_by_code = job.state == "COMPLETED" or (job.state == "FAILED" and own_code)
    return job.message if job.phase in FINAL_PHASES and job.message and not told_by_code else None


def word_of(job: Job) -> str:
    """For the operator. Its logs are complete: they are read from red-box whenever somebody asks."""
    word = {
        "final": True,
        "logs": "complete",
        "phase": job.phase.value,
        "state": job.state,
        "exitCode": job.exit_code,
        "signal": job.signal,
        "jobID": job.job_id,
    }
    return json.dumps({name: value for name, value in word.items() if value is not None})
