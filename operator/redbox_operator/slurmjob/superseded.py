"""Older attempts that live in Slurm again beside a newer one: they are cancelled.

Slurm may show again what it had forgotten, and an administrator may requeue what had failed.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from redbox_api.feed import RowKey
from redbox_api.models import FINAL_PHASES, Job
from redbox_kube.api.events import WARNING
from redbox_kube.runtime.clock import now
from redbox_kube.status.conditions import ConditionEvent, ConditionStatus, StatusCondition
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.slurmjob import path_of
from redbox_operator.slurmcluster.job_feed import RedboxLink
from redbox_operator.slurmjob import attempts
from redbox_operator.slurmjob.attempt_state import AttemptState

log = structlog.get_logger(__name__)
REASON = "OlderAttemptCancelled"


async def cancel_older_attempts(state: AttemptState, writer: StatusWriter) -> None:
    """Cancel through red-box every older attempt that lives, and say so in an event."""
    if state.link is None:
        return
    for key in older_keys(state):
        row = state.link.row(key)
        if row is None or row.phase in FINAL_PHASES or row.cancel_requested:
            continue
        await state.link.cancel(key, all_attempts=False)
        log.warning("older attempt cancelled", slurmjob=state.job.ref.full_name, job_id=row.job_id)
        await writer.publish(path_of(state.job.ref), state.job.uid, [_event(row, state.attempt.number)])


def forget_older_rows(state: AttemptState, link: RedboxLink) -> None:
    """Drop the rows of older attempts that have ended."""
    for key in older_keys(state):
        row = link.rows.get(key)
        if row is None or row.phase in FINAL_PHASES:
            link.forget(key)


def older_keys(state: AttemptState) -> Iterator[RowKey]:
    """The keys of attempts before the newest."""
    for number in attempts.older_than(state.attempt.number):
        yield state.row_key._replace(attempt=number)


def _event(row: Job, newest: int) -> ConditionEvent:
    message = (
        f"Attempt {row.attempt} (Slurm job {row.job_id or 'not known'}) lives in Slurm again although "
        f"attempt {newest} has followed it, and was cancelled."
    )
    condition = StatusCondition(
        type=f"Attempt{row.attempt}",
        status=ConditionStatus.FALSE,
        reason=REASON,
        message=message,
        last_transition_time=now(),
    )
    return ConditionEvent(WARNING, REASON, message, condition)
