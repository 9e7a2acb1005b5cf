"""What Slurm made of a job beside what the rule of its caller allows. Pure.

sbatch is called with an account and a partition of the rule, and still a plugin of slurmctld may give the job
others. So the first look at a job compares; what its user changes later with Slurm's own commands is between
the user and Slurm's associations.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from redbox.domain import Limits
from redbox.jobs.records import Record
from redbox.workload import Observation


def held_to_limits(record: Record, job: Observation) -> Record:
    """The record as it is; or, where the job is outside its rule, to be cancelled, and why."""
    why = beyond(record.limits, job)
    if record.confirmed or why is None:
        return record
    return replace(record, beyond=why, cancel_requested=True, warnings=(*record.warnings[-7:], why))


def beyond(limits: Limits, job: Observation) -> str | None:
    """Why the job is outside these limits, or None; what Slurm does not tell is outside of none."""
    accounts = {account.casefold() for account in limits.accounts or ()}  # which is how Slurm keeps them
    for what, given, allowed, listed in (
        ("account", job.account.casefold(), accounts, limits.accounts),
        ("partition", job.partition, limits.partitions or (), limits.partitions),
    ):
        if given and listed is not None and not allowed_all(given, allowed):
            names = ", ".join(sorted(listed)) or "none"
            return (
                f"Slurm gave the job {what} {given}, which the mapping does not allow (allowed: {names}): "
                "red-box cancels it."
            )
    return None


def allowed_all(given: str, allowed: Collection[str]) -> bool:
    """A job that waits may have several partitions."""
    return all(name in allowed for name in given.split(","))
