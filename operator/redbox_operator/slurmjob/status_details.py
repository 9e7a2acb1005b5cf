"""Which changes of a status may wait for the next one. Pure."""

from __future__ import annotations

from redbox_operator.api.slurmjob_status import JobPhase, SlurmJobStatus

DETAILS = ("state", "partition", "user", "run", "working_directory", "submitted_at")
QUEUE_DETAILS = ("reason", "message")
"""Slurm's reason for the wait of a job in its queue; in other phases these say more than the phase."""


def is_detail(before: SlurmJobStatus, after: SlurmJobStatus) -> bool:
    """Whether something differs, and nothing but details: no phase, no condition, no companion."""
    in_queue = before.phase is after.phase is JobPhase.SUBMITTED
    return before != after and _main_part(before, in_queue=in_queue) == _main_part(after, in_queue=in_queue)


def _main_part(status: SlurmJobStatus, *, in_queue: bool) -> SlurmJobStatus:
    left_out: dict[str, object] = dict.fromkeys(DETAILS)
    if in_queue:
        left_out |= dict.fromkeys(QUEUE_DETAILS)
        left_out["conditions"] = [
            condition.model_copy(update={"message": ""}) for condition in status.conditions
        ]
    return status.model_copy(update=left_out)
