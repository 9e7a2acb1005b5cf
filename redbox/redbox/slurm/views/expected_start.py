"""From squeue's rows of one job to the start that Slurm expects of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from redbox.slurm.commands.squeue import StartRow
from redbox.slurm.text.states import JOB_STATES, has_not_begun
from redbox_api.hostlists import expand, fold
from redbox_api.models import ExpectedStart

NEVER = datetime.max.replace(tzinfo=UTC)
UNCONSIDERED = frozenset({"BeginTime", "Dependency"})
"""Reasons of jobs that Slurm's scheduler passes over: their StartTime is their begin time, if any."""


def build_expected_start(rows: Sequence[StartRow]) -> ExpectedStart | None:
    """None where no part of the job waits.

    The tasks of an array start one by one. The components of a het job start together, and Slurm computes
    a time for each by itself.
    """
    waiting = [row for row in rows if has_not_begun(row.job.state)]
    if not waiting:
        return None
    is_het = any(row.job.het_job_id for row in waiting)
    decisive = (max if is_het else min)(waiting, key=_start_or_never)
    reason, at = decisive.job.reason, _start_of(decisive)
    if at is None or reason in UNCONSIDERED:
        return ExpectedStart(reason=reason, not_before=at)
    lists = [row.nodes for row in (waiting if is_het else [decisive]) if row.nodes]
    nodes = lists[0] if len(lists) == 1 else fold(expand(",".join(lists)))
    return ExpectedStart(reason=reason, starts_at=at, nodes=nodes or None)


def _start_of(row: StartRow) -> datetime | None:
    """None for a held job: what squeue shows is from before the hold."""
    return None if row.job.reason in JOB_STATES.held_reasons else row.at


def _start_or_never(row: StartRow) -> datetime:
    return _start_of(row) or NEVER
