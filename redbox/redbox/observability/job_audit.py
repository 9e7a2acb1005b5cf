"""The entries of the audit: every submit, act and refusal. `audit` writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redbox.core.domain import Caller, JobKey

REDBOX = "red-box"
"""The caller of cancellations that red-box decides itself; no caller's identity has this form."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act of a caller, or of red-box itself, and its outcome."""

    caller: str  # or REDBOX
    user: str | None
    act: str  # submit, cancel, hold, release, requeue, signal, make-volume, delete-volume
    job: str
    outcome: str  # done, same, or the name of the refusal
    job_id: str | None = None
    detail: str = ""


Audit = Callable[[AuditEntry], None]
"""Receives audit entries; must not block."""


def no_audit(entry: AuditEntry, /) -> None:
    """Discard the entry: for tests and embedded use."""
    del entry


def audit_entry(
    caller: Caller, act: str, key: JobKey, outcome: str, *, job_id: str | None = None, detail: str = ""
) -> AuditEntry:
    user = caller.user.name if caller.user else None
    return AuditEntry(caller.identity, user, act, str(key), outcome, job_id, detail)
