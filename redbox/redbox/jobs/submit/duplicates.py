"""Two jobs with one mark: which of them is the record's job. Pure.

An unanswered submit and its held retry may both have arrived, in either order, and a server that was away
cannot tell which is which. A job that runs or has run wins, because that cannot be undone; of those that
wait, the held one loses, because it alone is certain not to start meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from redbox.core.observations import Observation
from redbox.core.workload_manager import JobStates
from redbox.jobs.queue_snapshot import submit_order, was_refused
from redbox.jobs.record.record import JobRecord
from redbox_api.models import Phase

CLOCKS_DIFFER = timedelta(minutes=5)  # munge refuses to work beyond that


class ClaimRank(IntEnum):
    """How strong a job's claim to be the record's job is; the smaller, the stronger."""

    STARTED = 0
    WAITS = 1
    HELD = 2
    UNSEEN = 3


def jobs_with_mark(
    record: JobRecord, jobs: Iterable[Observation], *, but: str | None = None
) -> list[Observation]:
    """The jobs with the record's mark and uid, other than this id, the earliest first.

    Rows of refused submits do not count, whether of this PUT or of an earlier one of this key; nor do jobs
    from well before the record.
    """
    marked: dict[str, Observation] = {}
    for job in jobs:
        recent = job.submitted_at is None or job.submitted_at >= record.created_at - CLOCKS_DIFFER
        has_mark = job.mark == record.mark and job.uid == record.user.uid and not was_refused(job)
        if has_mark and recent and job.job_id != but:
            marked.setdefault(job.job_id, job)
    return sorted(marked.values(), key=submit_order)


def rank_of(job: Observation | None, states: JobStates) -> ClaimRank:
    """The claim of a job as the queue or the accounting shows it."""
    if job is None:
        return ClaimRank.UNSEEN
    if states.phase_of(job.state) is not Phase.PENDING:
        return ClaimRank.STARTED
    return ClaimRank.HELD if states.is_held(job) else ClaimRank.WAITS


@dataclass(frozen=True, slots=True)
class DuplicateVerdict:
    """`winner`: another job is the record's job; else the own one is, once `losers` are cancelled."""

    winner: Observation | None = None
    losers: tuple[Observation, ...] = ()
    unclear: bool = False  # the next poll decides


def resolve_duplicates(
    record: JobRecord,
    own: Observation | None,
    others: Iterable[Observation],
    polled_at: datetime,
    states: JobStates,
) -> DuplicateVerdict:
    """The record's job, of the own one and `others`: those of the poll before those of the accounting."""
    duplicates = jobs_with_mark(record, others, but=record.job_id)
    pending = [job for job in duplicates if states.phase_of(job.state) is Phase.PENDING]
    only_in_accounting = [job for job in pending if not job.live]
    if any(_may_be_new(job, polled_at) for job in only_in_accounting):
        return DuplicateVerdict(unclear=True)
    real = [job for job in duplicates if job not in only_in_accounting and not _never_started(job, states)]
    best = min(real, key=lambda job: rank_of(job, states), default=None)
    if best is not None and rank_of(best, states) < rank_of(own, states):
        return DuplicateVerdict(winner=best)
    return DuplicateVerdict(losers=tuple(job for job in real if job.live and job in pending))


def _may_be_new(job: Observation, polled_at: datetime) -> bool:
    """It may have arrived after the poll; a job with an older row is one that slurmctld has forgotten."""
    return job.submitted_at is None or job.submitted_at > polled_at - CLOCKS_DIFFER


def _never_started(job: Observation, states: JobStates) -> bool:
    """Cancelled while it waited, perhaps by red-box before a crash: not a reason to give up the other job.

    Its nodes show that: squeue shows the end of such a job as its start.
    """
    return states.phase_of(job.state) is Phase.CANCELLED and not job.nodes
