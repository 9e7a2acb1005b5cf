"""How the pod of a job on a virtual node ends: as a companion's pod does (`redbox_shared.job_end`)."""

from __future__ import annotations

from dataclasses import dataclass

from redbox_api.errors import NotAllowed, NotAuthenticated, Refused
from redbox_api.models import FINAL_PHASES, Job
from redbox_shared.job_end import (
    EXIT_NOT_ALLOWED,
    EXIT_REFUSED,
    JobEnd,
    encode_message,
    refusal_message,
)

END_FIELDS = {"phase", "state", "reason", "exit_code", "signal", "job_id", "message"}


@dataclass(frozen=True)
class JobRefusal:
    """Why the job was never submitted: red-box's sentence, and its problem type."""

    sentence: str
    type: str = "about:blank"
    exit_code: int = EXIT_REFUSED
    reason: str = "Refused"
    """Of the pod."""

    @classmethod
    def by(cls, refused: Refused) -> JobRefusal:
        denied = isinstance(refused, NotAllowed | NotAuthenticated)
        return cls(str(refused), refused.problem.type, EXIT_NOT_ALLOWED if denied else EXIT_REFUSED)

    def termination_message(self) -> str:
        """For the operator."""
        return encode_message(refusal_message(self.sentence, problem_type=self.type[:256])).decode()


def end_of(job: Job) -> JobEnd:
    """The job's end; the job must be final."""
    return JobEnd(job.model_dump(by_alias=True, include=END_FIELDS))


def explanation_of(job: Job) -> str | None:
    """Red-box's sentence about the job's end; None before that, and where its own exit code is enough."""
    return end_of(job).explanation() if job.phase in FINAL_PHASES else None


def termination_message_of(job: Job) -> str:
    """For the operator. The logs count as complete: red-box serves them on request."""
    return encode_message(end_of(job).termination_message(logs="complete")).decode()
