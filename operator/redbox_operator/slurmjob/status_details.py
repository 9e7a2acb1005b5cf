"""Which changes of a status may wait for the next one. Pure, but for the clock that its caller passes in.

A write costs the API server and etcd 9 ms of CPU, and everybody who watches an event. Most changes of a young
job are details of the one before: its state and partition some milliseconds after its id. They are written
with the next change, or after `LONGEST_WAIT_S`; a change of the phase, of a condition or of the companion
never waits.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime, timedelta

from redbox_operator.api.slurmjob_status import JobPhase, SlurmJobStatus

LONGEST_WAIT_S = 2.0
"""Longer than Slurm and red-box need to show the start of a job that need not wait."""
DETAILS = ("state", "partition", "user", "run", "working_directory", "submitted_at")
QUEUE_DETAILS = ("reason", "message")
"""Slurm's reason for the wait of a job in its queue; in other phases these say more than the phase."""


def is_detail(before: SlurmJobStatus, after: SlurmJobStatus) -> bool:
    """Whether nothing but details differs."""
    in_queue = before.phase is after.phase is JobPhase.SUBMITTED
    ignored = dict.fromkeys((*DETAILS, *(QUEUE_DETAILS if in_queue else ())))
    return before.model_copy(update=ignored) == after.model_copy(update=ignored)


class WaitingDetails:
    """Since when the details of SlurmJobs wait, by an equal key for each SlurmJob."""

    def __init__(self) -> None:
        self._due: dict[Hashable, datetime] = {}

    def pause_s(self, key: Hashable, before: SlurmJobStatus, after: SlurmJobStatus, now: datetime) -> float:
        """Seconds that this change may still wait; 0 where it is to be written now, or there is none."""
        if before != after and is_detail(before, after):
            due = self._due.setdefault(key, now + timedelta(seconds=LONGEST_WAIT_S))
            if now < due:
                return (due - now).total_seconds()
        self.forget(key)
        return 0.0

    def forget(self, key: Hashable) -> None:
        self._due.pop(key, None)
