"""Two jobs with one mark: which of them is the job. Pure.

An unanswered submit and its held retry may both have arrived, in either order, and a server that was away
does not know which is which. One that runs or has run is the job, for nothing takes that back; of those that
wait, the held one steps back, for it alone is sure not to start meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from redbox.core.workload_manager import Observation
from redbox.jobs.queue_snapshot import submit_order, was_refused
from redbox.jobs.record.record import JobRecord
from redbox.jobs.record.state_machine import phase_of
from redbox_api.models import Phase

CLOCKS_DIFFER = timedelta(minutes=5)  # munge refuses to work beyond that
HELD_REASONS = frozenset({"JobHeldUser", "JobHeldAdmin"})


class ClaimRank(IntEnum):
    """How good a job's claim is; the smaller, the better."""

    STARTED = 0
    WAITS = 1
    HELD = 2
    UNSEEN = 3


def jobs_with_mark(
    record: JobRecord, jobs: Iterable[Observation], *, but: str | None = None
) -> list[Observation]:
    """The jobs with the record's mark and uid, other than this id, the earliest first.

    Rows of refused submits are none, of this PUT or of an earlier one of this key; nor is anything from well
    before the record.
    """
    ours: dict[str, Observation] = {}
    for job in jobs:
        recent = job.submitted_at is None or job.submitted_at >= record.created_at - CLOCKS_DIFFER
        is_ours = job.mark == record.mark and job.uid == record.user.uid and not was_refused(job)
        if is_ours and recent and job.job_id != but:
            ours.setdefault(job.job_id, job)
    return sorted(ours.values(), key=submit_order)


def rank_of(job: Observation | None) -> ClaimRank:
    """The claim of a job as a look or the accounting shows it."""
    if job is None:
        return ClaimRank.UNSEEN
    if phase_of(job.state) is not Phase.PENDING:
        return ClaimRank.STARTED
    return ClaimRank.HELD if job.reason in HELD_REASONS else ClaimRank.WAITS


@dataclass(frozen=True, slots=True)
class DuplicateVerdict:
    """`winner`: the other job that is the one; else the record's own is, once `losers` are cancelled."""

    winner: Observation | None = None
    losers: tuple[Observation, ...] = ()
    unclear: bool = False  # the next look tells more


def resolve_duplicates(
    record: JobRecord, own: Observation | None, others: Iterable[Observation], looked_at: datetime
) -> DuplicateVerdict:
    """Which is the job, of the record's own and `others`: those that a look shows before those of history."""
    rivals = jobs_with_mark(record, others, but=record.job_id)
    unseen = [job for job in rivals if not job.live and phase_of(job.state) is Phase.PENDING]
    if any(_may_be_new(job, looked_at) for job in unseen):
        return DuplicateVerdict(unclear=True)
    real = [job for job in rivals if job not in unseen and not _never_started(job)]
    best = min(real, key=rank_of, default=None)
    if best is not None and rank_of(best) < rank_of(own):
        return DuplicateVerdict(winner=best)
    return DuplicateVerdict(
        losers=tuple(job for job in real if job.live and phase_of(job.state) is Phase.PENDING)
    )


def _may_be_new(job: Observation, looked_at: datetime) -> bool:
    """It may have come after the look. An older row that no look shows is of a job that slurmctld forgot."""
    return job.submitted_at is None or job.submitted_at > looked_at - CLOCKS_DIFFER


def _never_started(job: Observation) -> bool:
    """Cancelled while it waited, by us perhaps, before a crash: no reason to give up the other one.

    Told by its nodes: squeue shows the end of such a job as its start.
    """
    return phase_of(job.state) is Phase.CANCELLED and not job.nodes
