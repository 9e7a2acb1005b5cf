"""A SlurmJob's current attempt, and when the next one begins. Pure.

Each attempt is its own job at red-box, by key and number. A failed one is followed by another as often as
`backoffLimit` allows, and at once if nothing shows that it had started: Slurm forgot it, or its node could
not launch it. One that was cancelled to suspend the SlurmJob is followed by another when it is resumed. The
status has all of this, for the time after a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from redbox_api.models import Job, Phase
from redbox_operator.api.slurmjob import SlurmJobSpec
from redbox_operator.api.slurmjob_status import ConditionType, JobPhase, SlurmJobStatus
from redbox_shared.backoff import Backoff
from redbox_shared.wire import LAUNCH_FAILED

FIRST = 1
BACKOFF = Backoff(10.0, 360.0, jitter=0.0)
RETRYING = "Retrying"
FORGOTTEN = "ForgottenBySlurm"
NEVER_STARTED = frozenset({FORGOTTEN, LAUNCH_FAILED})
"""Reasons of condition Submitted between two attempts of which the second begins at once."""
RETRIES = NEVER_STARTED | {RETRYING}
SUSPENDING = "Suspending"
SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt's number, and how many attempts before it ended by a suspension."""

    number: int
    resumed: int

    @property
    def failures(self) -> int:
        """The number of failed attempts, if this one has failed."""
        return self.number - self.resumed


def current(status: SlurmJobStatus) -> Attempt:
    return Attempt(status.attempts or FIRST, status.resumed or 0)


def may_retry(spec: SlurmJobSpec, attempt: Attempt, row: Job) -> bool:
    """Whether this end of the attempt is a failure that another attempt follows."""
    counts = spec.retry_lost or row.no_sign_of_start
    failed = row.phase is Phase.FAILED or (row.phase is Phase.LOST and counts)
    return failed and attempt.failures <= spec.backoff_limit


def pause_after(attempt: Attempt) -> float:
    """Seconds until the next attempt after so many failures."""
    return BACKOFF.pause_s(attempt.failures)


def is_being_suspended(status: SlurmJobStatus) -> bool:
    """Whether the status has announced that the attempt is cancelled, which cannot be undone.

    The phase alone is not enough: users and administrators of Slurm suspend and hold jobs, too.
    """
    return status.phase is JobPhase.SUSPENDED and status.reason == SUSPENDING


def is_suspended_to_restart(status: SlurmJobStatus) -> bool:
    """Whether the attempt is or was cancelled for a suspension: once it is resumed another one follows."""
    return status.phase is JobPhase.SUSPENDED and status.reason in {SUSPENDING, SUSPENDED}


def was_suspended(status: SlurmJobStatus, row: Job) -> bool:
    """Whether this end of the attempt is the suspension that the status announced before."""
    recorded = status.phase is JobPhase.SUSPENDED and status.reason == SUSPENDED
    return row.phase is Phase.CANCELLED and (recorded or is_being_suspended(status))


def next_begins_in(spec: SlurmJobSpec, status: SlurmJobStatus, now: datetime) -> float | None:
    """Seconds until the next attempt begins; None where none follows."""
    if status.phase is JobPhase.SUSPENDED and status.reason == SUSPENDED:
        return None if spec.suspend else 0.0
    submitted = status.condition(ConditionType.SUBMITTED)
    if status.phase is not JobPhase.PENDING or submitted is None or submitted.reason not in RETRIES:
        return None
    if submitted.reason in NEVER_STARTED:
        return 0.0
    pause = pause_after(current(status))
    left = pause - (now - submitted.last_transition_time).total_seconds()
    return left if 0 < left <= pause else 0.0  # more: the clock was set back


def following(status: SlurmJobStatus) -> Attempt:
    """The next attempt."""
    resumes = status.phase is JobPhase.SUSPENDED
    attempt = current(status)
    return Attempt(attempt.number + 1, attempt.resumed + resumes)
