"""What is told to the audit log: every submit, act and refusal. Who writes it down is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from redbox.core.domain import Caller, JobKey

REDBOX = "red-box"
"""Who cancels what no caller asked for; no caller's identity looks so."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that a caller asked to be done, or red-box itself saw need for, and what came of it."""

    caller: str  # or REDBOX
    user: str | None
    act: str  # submit, cancel, hold, release, requeue, signal
    job: str
    outcome: str  # done, same, or the name of the refusal
    job_id: str | None = None
    detail: str = ""


class Audit(Protocol):
    """Receives deeds; must not block."""

    def __call__(self, deed: Deed) -> None: ...


def no_audit(deed: Deed) -> None:
    """For tests and embedded use."""
    del deed


def deed(
    caller: Caller, act: str, key: JobKey, outcome: str, *, job_id: str | None = None, detail: str = ""
) -> Deed:
    user = caller.user.name if caller.user else None
    return Deed(caller.identity, user, act, str(key), outcome, job_id, detail)
