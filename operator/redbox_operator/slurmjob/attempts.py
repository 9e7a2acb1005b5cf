"""A SlurmJob's current attempt, and when the next one begins. Pure.

Each attempt is its own job at red-box, by key and number. A failed one is followed by another as often as
`backoffLimit` allows, and at once if nothing shows that it had started: Slurm forgot it, or its node could
not launch it. One that was cancelled to suspend the SlurmJob is followed by another when it is resumed. The
status has all of this, for the time after a restart.

A job that Slurm requeued and holds, since a node could not launch it, is a failure too. Its retry is the
release of that job: it keeps its id, and its place among the jobs of its user.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from redbox_api.models import Job, Phase
from redbox_operator.api.slurmjob import SlurmJobSpec
from redbox_operator.api.slurmjob_status import ConditionType, JobPhase, SlurmJobStatus
from redbox_shared.backoff import Backoff
from redbox_shared.wire import HELD_BY_SLURM, LAUNCH_FAILED

FIRST = 1
MOST_OLDER = 1000
BACKOFF = Backoff(10.0, 360.0, jitter=0.0)
RETRYING = "Retrying"
FORGOTTEN = "ForgottenBySlurm"
NEVER_STARTED = frozenset({FORGOTTEN, LAUNCH_FAILED})
"""Reasons of condition Submitted between two attempts of which the second begins at once."""
RETRIES = NEVER_STARTED | {RETRYING}
SUSPENDING = "Suspending"
SUSPENDED = "Suspended"


class HoldState(StrEnum):
    """The request to Slurm for a pending job; the reason of condition Held."""

    HELD = "Held"
    BY_SLURM = "HeldBySlurm"  # without a request: a node could not launch the job
    RELEASING = "Releasing"
    RELEASED = "Released"


@dataclass(frozen=True, slots=True)
class CancelState:
    """How far a cancel of all jobs of a SlurmJob is."""

    obstacle: str = ""  # why red-box has not taken it
    continues: str = ""  # "is back": when it is sent again
    waits_for: tuple[str, ...] = ()  # job ids that Slurm has yet to end

    @property
    def over(self) -> bool:
        """Whether nothing of it lives in Slurm, and nothing can be submitted any more."""
        return not self.obstacle and not self.waits_for

    @property
    def message(self) -> str:
        if self.obstacle:
            then = f". It is cancelled when red-box {self.continues}" if self.continues else ""
            return f"It is to be cancelled, and cannot be yet: {self.obstacle}{then}."
        return f"It is being cancelled: Slurm has yet to end {', '.join(self.waits_for)}."


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt's number, how many before it ended by a suspension, and releases after failed launches."""

    number: int
    resumed: int
    relaunches: int = 0

    @property
    def failures(self) -> int:
        """The number of failed attempts, if this one has failed."""
        return self.number - self.resumed + self.relaunches


def current(status: SlurmJobStatus) -> Attempt:
    return Attempt(status.attempts or FIRST, status.resumed or 0, status.relaunches or 0)


def older_than(newest: int) -> range:
    """The attempts before the newest. Not all: a status may name any number of them."""
    return range(max(FIRST, newest - MOST_OLDER), newest)


def may_retry(spec: SlurmJobSpec, attempt: Attempt, row: Job) -> bool:
    """Whether this end of the attempt is a failure that another attempt follows."""
    counts = spec.retry_lost or row.no_sign_of_start
    failed = row.phase is Phase.FAILED or (row.phase is Phase.LOST and counts)
    return failed and attempt.failures <= spec.backoff_limit


def is_held_by_slurm(row: Job) -> bool:
    """Whether Slurm holds it without a request: a node could not launch it."""
    return row.phase in {Phase.PENDING, Phase.SUSPENDED} and row.reason in HELD_BY_SLURM


def may_relaunch(spec: SlurmJobSpec, status: SlurmJobStatus, attempt: Attempt, row: Job) -> bool:
    """Whether a job that Slurm holds is released: it was announced for this run, or is one more retry."""
    return _relaunched_run(status, attempt) == row.run or attempt.failures <= spec.backoff_limit


def relaunches_of(
    spec: SlurmJobSpec, status: SlurmJobStatus, attempt: Attempt, released: Job | None
) -> tuple[int, int | None]:
    """How many releases after failed launches count as retries, and the run of this attempt's last one.

    They are counted before the release is sent, and by run: one that is sent twice counts once. One that a
    user requested beyond the limit counts for nothing.
    """
    run = _relaunched_run(status, attempt)
    if released is None or not is_held_by_slurm(released) or released.run == run:
        return attempt.relaunches, run
    return attempt.relaunches + (attempt.failures <= spec.backoff_limit), released.run


def _relaunched_run(status: SlurmJobStatus, attempt: Attempt) -> int | None:
    return status.relaunched_run if (status.attempts or FIRST) == attempt.number else None


def release_cure(name: str, spec: SlurmJobSpec) -> str:
    """What to type for a job that Slurm holds."""
    limit = spec.backoff_limit
    used = f"The retries of its backoffLimit ({limit}) are used. " if limit else ""
    by_itself = "" if limit else " With a backoffLimit the operator does so by itself, as a retry."
    return f"{used}`kubectl slurm release {name}` lets it start.{by_itself}"


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
    return Attempt(attempt.number + 1, attempt.resumed + resumes, attempt.relaunches)
