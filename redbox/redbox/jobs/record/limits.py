"""The limits of a mapping rule, compared with a request and with the job that Slurm made of it. Pure.

sbatch is called with an account and a partition of the rule, and still a plugin of slurmctld may give the job
others, and a later component of a het job may name others. So the first poll that shows a job compares; what
its user changes later with Slurm's own commands is between the user and Slurm's associations. For the same
reason jobs that `redbox recover` found are not compared: they are past their first poll.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from redbox.core.domain import Limits
from redbox.core.observations import Observation
from redbox.jobs.record.record import JobRecord, with_warning


@dataclass(frozen=True, slots=True)
class LimitViolation:
    """A name that is not among a rule's limits."""

    what: str  # account or partition
    named: str
    allowed: str  # as a list for people


def violation_of(limits: Limits, *, account: str, partition: str) -> LimitViolation | None:
    """The first of the two that is outside the limits, or None; an empty name is within all limits.

    A job that waits may have several partitions, a het job several accounts as well: all must be allowed.
    """
    accounts = limits.accounts and {name.lower() for name in limits.accounts}  # as Slurm stores them
    if not _are_among(account.lower(), accounts):
        return LimitViolation("account", account, _in_words(limits.accounts))
    if not _are_among(partition, limits.partitions):
        return LimitViolation("partition", partition, _in_words(limits.partitions))
    return None


def _are_among(names: str, allowed: Collection[str] | None) -> bool:
    return not names or allowed is None or all(name in allowed for name in names.split(","))


def _in_words(allowed: Collection[str] | None) -> str:
    return ", ".join(sorted(allowed or ())) or "none"


def enforce_limits(record: JobRecord, job: Observation) -> JobRecord:
    """The record unchanged, or to be cancelled and why, if its job is outside the rule."""
    found = violation_of(record.limits, account=job.account, partition=job.partition)
    if record.confirmed or found is None:
        return record
    why = (
        f"Slurm gave the job {found.what} {found.named}, which the mapping does not allow "
        f"(allowed: {found.allowed}): red-box cancels it."
    )
    return with_warning(replace(record, limits_exceeded=why, cancel_requested=True), why)
