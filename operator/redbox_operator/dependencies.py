"""`dependsOn`: what a SlurmJob waits for, as Slurm is told, or why it cannot be told yet. Pure.

Where both jobs are of one owner on one cluster, and the other one is not tried again when it fails, Slurm
itself is told to wait. Everywhere else the SlurmJob is not submitted before the other one's end is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redbox_api.models import Dependency
from redbox_operator.api.problems import StatusProblem
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_fields import DependencyType, DependsOn
from redbox_operator.api.slurmjob_status import JobPhase, SlurmJobStatus


@dataclass(frozen=True, slots=True)
class Other:
    """A SlurmJob that another one names, as it is now."""

    job: SlurmJob
    status: SlurmJobStatus


Lookup = Callable[[str], Other | None]
"""A SlurmJob of the same namespace, by name."""


def are_met(status: SlurmJobStatus) -> bool:
    """Slurm gives nodes to no job that waits for another, which may be gone since, or be another one."""
    return bool(status.dependencies_met or status.nodes)


def resolve(job: SlurmJob, cluster: str, lookup: Lookup) -> tuple[list[Dependency], StatusProblem | None]:
    """What Slurm is to be told, if all that is needed for that is known."""
    if cycle := _cycle(job, lookup):
        message = f"it waits for itself ({' -> '.join(cycle)}): delete one of these SlurmJobs"
        return [], StatusProblem("DependencyCycle", message, final=True)
    told: list[Dependency] = []
    for wanted in job.spec.depends_on:
        other = lookup(wanted.name)
        if other is None:
            message = (
                f"it depends on SlurmJob {wanted.name}, which does not exist: create it, and this goes on"
            )
            return [], StatusProblem("DependencyMissing", message)
        fulfilled = _fulfilled(wanted, other.status)
        if fulfilled is False:
            return [], StatusProblem("DependencyFailed", _never(wanted, other.status), final=True)
        if fulfilled is None and not _slurm_can_wait(job, cluster, other):
            message = f"it is submitted once SlurmJob {wanted.name} is where `{wanted.type}` wants it to be"
            return [], StatusProblem("DependencyWaiting", message)
        if fulfilled is None:
            told.append(Dependency(type=wanted.type.value, key=other.job.uid))
    return told, None


def _fulfilled(wanted: DependsOn, status: SlurmJobStatus) -> bool | None:
    """None while it is not known yet."""
    if wanted.type is DependencyType.AFTER and (status.started_at or status.finished):
        return True
    if not status.finished:
        return None
    match wanted.type:
        case DependencyType.AFTEROK | DependencyType.AFTERCORR:
            return status.phase is JobPhase.SUCCEEDED
        case DependencyType.AFTERNOTOK:
            return status.phase is not JobPhase.SUCCEEDED
    return True


def _slurm_can_wait(job: SlurmJob, cluster: str, other: Other) -> bool:
    spec, status = other.job.spec, other.status
    same = status.cluster == cluster and spec.service_account_name == job.spec.service_account_name
    one_attempt = spec.backoff_limit == 0 and not spec.suspend
    return same and one_attempt and status.job_id is not None


def _never(wanted: DependsOn, status: SlurmJobStatus) -> str:
    needed = "failure" if wanted.type is DependencyType.AFTERNOTOK else "success"
    return (
        f"it depends on the {needed} of SlurmJob {wanted.name}, which ended {status.phase}: it can never "
        "start. Delete it, and apply it again once the other one has ended as needed"
    )


def _cycle(job: SlurmJob, lookup: Lookup) -> list[str]:
    """The way from the job back to itself, if there is one."""
    ways = [[job.name, wanted.name] for wanted in job.spec.depends_on]
    visited: set[str] = set()
    while ways:
        way = ways.pop()
        if way[-1] == job.name:
            return way
        if way[-1] not in visited and (other := lookup(way[-1])):
            visited.add(way[-1])
            ways += [[*way, wanted.name] for wanted in other.job.spec.depends_on]
    return []
