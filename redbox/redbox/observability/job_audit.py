"""The entries of the audit: every submit, act and refusal. `audit` writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redbox.core.domain import Caller, JobKey

REDBOX = "red-box"
"""The caller of cancellations that red-box decides itself; no caller's identity has this form."""
ENTER = "enter"
"""The act of a caller that is not let in."""
DROPPED = "Dropped"
"""The outcome of the act `audit`: a line that counts others."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act of a caller, or of red-box itself, and its outcome."""

    caller: str  # or REDBOX
    user: str | None
    act: str  # submit, cancel, hold, release, requeue, signal, update, make-volume, delete-volume, enter, ...
    job: str
    outcome: str  # done, same, or the name of the refusal
    job_id: str | None = None
    detail: str = ""
    name: str = ""  # of the job in Slurm: that of its SlurmJob, if nothing else names it


Audit = Callable[[AuditEntry], None]
"""Receives audit entries; must not block."""


def no_audit(entry: AuditEntry, /) -> None:
    """Discard the entry: for tests and embedded use."""
    del entry


def audit_entry(
    caller: Caller,
    act: str,
    key: JobKey,
    outcome: str,
    *,
    job_id: str | None = None,
    detail: str = "",
    name: str = "",
) -> AuditEntry:
    user = caller.user.name if caller.user else None
    return AuditEntry(caller.identity, user, act, str(key), outcome, job_id, detail, name)
