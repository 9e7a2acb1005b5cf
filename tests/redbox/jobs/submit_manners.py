"""How submits go in the simulation: when sbatch reaches the controller, when it ends, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from redbox.core.domain import UnixUser
from redbox.core.workload_manager import (
    Submission,
    SubmitOutcome,
    SubmitRejected,
    SubmitUnavailable,
)


@dataclass(frozen=True)
class Manner:
    """How a submit goes: when it reaches the controller, and when its sbatch ends (None: never)."""

    arrives_s: float | None = 0.0
    ends_s: float | None = 0.0
    answer: SubmitOutcome | None = None  # None: the controller's, or Unknown where sbatch heard nothing


PROMPT = Manner()
REFUSED = Manner(arrives_s=None, answer=SubmitRejected("sbatch: error: invalid partition specified: nowhere"))
UNAVAILABLE = Manner(arrives_s=None, answer=SubmitUnavailable("Unable to contact slurm controller"))
NEVER_ARRIVES = Manner(arrives_s=None, ends_s=9.0)
HANGS = Manner(arrives_s=0.0, ends_s=None)


def late(arrives_s: float, ends_s: float = 9.0) -> Manner:
    """sbatch gives up, and what it sent arrives all the same."""
    return Manner(arrives_s, ends_s)


@dataclass
class Sbatch:
    """A process on the login node, and what it has sent."""

    user: UnixUser
    submission: Submission
    manner: Manner
    began: float
    job_id: str | None = None
    arrived: bool = False

    def running(self, now: float) -> bool:
        return self.manner.ends_s is None or now < self.began + self.manner.ends_s
