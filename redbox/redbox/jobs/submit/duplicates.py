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
from redbox.jobs.queue_snapshot import order_of_birth, was_refused
from redbox.jobs.record.record import Record
from redbox.jobs.record.state_machine import phase_of
from redbox_api.models import Phase

CLOCKS_DIFFER = timedelta(minutes=5)  # munge refuses to work beyond that
HELD_REASONS = frozenset({"JobHeldUser", "JobHeldAdmin"})


class Standing(IntEnum):
    """How good a job's claim is; the smaller, the better."""

    STARTED = 0
    WAITS = 1
    HELD = 2
    UNSEEN = 3


def with_mark(record: Record, jobs: Iterable[Observation], *, but: str | None = None) -> list[Observation]:
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
    return sorted(ours.values(), key=order_of_birth)


def standing(job: Observation | None) -> Standing:
    """The claim of a job as a look or the accounting shows it."""
    if job is None:
        return Standing.UNSEEN
    if phase_of(job.state) is not Phase.PENDING:
        return Standing.STARTED
    return Standing.HELD if job.reason in HELD_REASONS else Standing.WAITS


@dataclass(frozen=True, slots=True)
class Verdict:
    """`winner`: the other job that is the one; else the record's own is, once `losers` are cancelled."""

    winner: Observation | None = None
    losers: tuple[Observation, ...] = ()
    unclear: bool = False  # the next look tells more


def judge(
    record: Record, own: Observation | None, others: Iterable[Observation], looked_at: datetime
) -> Verdict:
    """Which is the job, of the record's own and `others`: those that a look shows before those of history."""
    rivals = with_mark(record, others, but=record.job_id)
    unseen = [job for job in rivals if not job.live and phase_of(job.state) is Phase.PENDING]
    if any(_may_be_new(job, looked_at) for job in unseen):
        return Verdict(unclear=True)
    real = [job for job in rivals if job not in unseen and not _never_started(job)]
    best = min(real, key=standing, default=None)
    if best is not None and standing(best) < standing(own):
        return Verdict(winner=best)
    return Verdict(losers=tuple(job for job in real if job.live and phase_of(job.state) is Phase.PENDING))


def _may_be_new(job: Observation, looked_at: datetime) -> bool:
    """It may have come after the look. An older row that no look shows is of a job that slurmctld forgot."""
    return job.submitted_at is None or job.submitted_at > looked_at - CLOCKS_DIFFER


def _never_started(job: Observation) -> bool:
    """Cancelled while it waited, by us perhaps, before a crash: no reason to give up the other one.

    Told by its nodes: squeue shows the end of such a job as its start.
    """
    return phase_of(job.state) is Phase.CANCELLED and not job.nodes
