"""Jobs that slurmctld has forgotten: what shows that one had started, and the end of its record. Pure.

A slurmctld that is killed comes back without the jobs of the last seconds, started ones too. Without a sign
of a start such a job counts as a failed attempt, which the operator repeats; so every doubt is a sign.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from redbox.core.observations import Observation
from redbox.core.output_patterns import TASK_PATTERN, VARYING
from redbox.core.workload_manager import JobOutput
from redbox.jobs.record.record import FORGOTTEN, JobRecord
from redbox.jobs.record.state_machine import lost
from redbox_api.models import Phase

BEGAN = frozenset({Phase.RUNNING, Phase.SUSPENDED})
UNCHECKED_S = 45.0
"""How long a job is absent before an output that cannot be listed counts as a sign of a start."""


@dataclass(frozen=True, slots=True)
class RestartEvidence:
    """What follows for an absent job from a restart of slurmctld since it was last shown."""

    answers_for_s: float  # how long the restarted slurmctld has answered
    output_exists: bool | None = None  # None: it could not be checked


def was_shown_to_start(record: JobRecord) -> bool:
    """Whether any poll has shown a start; the bytes of a log are read only after that."""
    status = record.status
    tasks_began = any(task.state != "PENDING" for task in status.tasks)
    has_nodes = bool(status.nodes)  # its Prolog may run, or a node powers up for it
    return (
        record.phase in BEGAN or record.run > 1 or status.started_at is not None or tasks_began or has_nodes
    )


def sign_of_start(record: JobRecord, row: Observation | None, *, output_exists: bool | None) -> str | None:
    """A clause that names what shows, or may hide, a start; None: nothing does."""
    if record.phase is Phase.PENDING and record.status.nodes:
        return f"Slurm had given it nodes ({record.status.nodes})"
    if was_shown_to_start(record):
        since = record.status.started_at
        return f"Slurm had shown that it started{f' ({since:%H:%M:%S} UTC)' if since else ''}"
    if row is not None and row.started_at is not None:
        return f"the accounting has a start of it ({row.started_at:%H:%M:%S} UTC, {row.state})"
    path = record.status.stdout
    if path is None or output_exists is None:
        return f"whether its output file ({path or 'path not known'}) exists cannot be found out"
    return f"its output file {path} exists" if output_exists else None


def output_of(record: JobRecord) -> JobOutput | None:
    """The output to look for; None where its path is not known, or its absence would show nothing."""
    status = record.status
    if status.stdout is None or record.job_id is None:
        return None
    directory = status.working_directory or record.working_directory
    is_array = status.array_size or VARYING.search(status.stdout)  # of others it is resolved
    if is_array and not TASK_PATTERN.search(status.stdout):
        return None  # of an array each task needs its own
    return JobOutput(status.stdout, record.job_id, status.name or record.job_name, record.user, directory)


def forgotten(
    record: JobRecord, now: datetime, what: str, sign: str | None, *, accounting: bool
) -> JobRecord:
    """The end of a job that a restarted slurmctld does not show; `what` says so of its id."""
    if sign is not None:
        found = f"It may have started: {sign}. Its outcome is unknown"
    else:
        shown = "neither polls nor the accounting show a start" if accounting else "no poll shows a start"
        found = f"Nothing shows that it started: {shown}, and there is no output file {record.status.stdout}"
    message = f"{what}: slurmctld was restarted before it had saved the job. {found}."
    ended = lost(record, now, message)
    if ended.phase is not Phase.LOST:
        return ended
    return replace(ended, lost_reason=FORGOTTEN, no_sign_of_start=sign is None)
