"""`dependsOn`: the dependencies that Slurm waits for, or why the SlurmJob cannot be submitted yet. Pure.

Where both jobs have one owner on one cluster, and the other one is not retried when it fails, Slurm itself
waits. Everywhere else the SlurmJob is not submitted before the other one has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redbox_api.models import Dependency
from redbox_kube.status.problems import StatusProblem
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_fields import DependencyType, DependsOn
from redbox_operator.api.slurmjob_status import JobPhase, SlurmJobStatus
from redbox_operator.companion_pods.placement import chosen_cluster
from redbox_operator.slurmjob.attempts import is_suspended_to_restart

SHOWN = 10
"""Of a cycle so many are named: it may have thousands, and each of them says so."""
APPLY_AGAIN = "Delete it, and apply it again after the other SlurmJob has ended as needed"
FORGETS = (
    "Slurm forgets jobs some minutes after their end (MinJobAge): should it have forgotten job {} by then, "
    "it refuses this one"
)
Lookup = Callable[[str], SlurmJob | None]
"""A SlurmJob of the same namespace, by name."""
Names = Callable[[str], Sequence[str]]
"""The names that it depends on; none where any of several is enough, for they show no cycle."""


def are_met(status: SlurmJobStatus) -> bool:
    """A job that has nodes has waited: the other SlurmJob may be deleted since, or made again."""
    return bool(status.dependencies_met or status.nodes)


def resolve(
    job: SlurmJob, cluster: str, lookup: Lookup, depends_on: Names
) -> tuple[list[Dependency], StatusProblem | None]:
    """The dependencies for Slurm, or the problem that keeps the SlurmJob from being submitted."""
    if cycle := _cycle(job, depends_on):
        shown = [*cycle[:SHOWN], f"{len(cycle) - SHOWN - 1} more"] if len(cycle) > SHOWN + 2 else cycle[:-1]
        path = " -> ".join([*shown, job.name])
        message = f"the SlurmJob depends on itself ({path}): delete one of these SlurmJobs"
        return [], StatusProblem("DependencyCycle", message, final=True)
    if job.spec.depends_on_any:
        return [], _until_any_is_met(job, lookup)
    for_slurm = [Dependency(type=other.type.value, job_id=other.job_id) for other in job.spec.depends_on_jobs]
    for wanted in job.spec.depends_on:
        other = lookup(wanted.name)
        if other is None:
            message = (
                f"depends on SlurmJob {wanted.name}, which does not exist. Create it; "
                "this SlurmJob then continues"
            )
            return [], StatusProblem("DependencyMissing", message)
        fulfilled = _fulfilled(wanted, other.status)
        if fulfilled is False:
            return [], StatusProblem("DependencyFailed", _can_never_start(wanted, other.status), final=True)
        if fulfilled is None and not _slurm_can_wait(job, cluster, other):
            message = f"waits for SlurmJob {wanted.name} (`{wanted.type}`); it is submitted afterwards"
            message += "".join(f". {FORGETS.format(other.job_id)}" for other in job.spec.depends_on_jobs[:1])
            return [], StatusProblem("DependencyWaiting", message)
        if fulfilled is None:
            for_slurm.append(Dependency(type=wanted.type.value, key=other.uid))
    return for_slurm, None


def _until_any_is_met(job: SlurmJob, lookup: Lookup) -> StatusProblem | None:
    """Of `dependsOnAny`: the SlurmJob is submitted as soon as one dependency is met, and not before."""
    others = {wanted: lookup(wanted.name) for wanted in job.spec.depends_on}
    met = [_fulfilled(wanted, other.status) if other else None for wanted, other in others.items()]
    if True in met or not met:
        return None
    names = ", ".join(f"{wanted.name} (`{wanted.type}`)" for wanted in others)
    if all(is_met is False for is_met in met):
        message = f"depends on one of {names}, and none ended as needed: it can never start. {APPLY_AGAIN}"
        return StatusProblem("DependencyFailed", message, final=True)
    return StatusProblem("DependencyWaiting", f"waits for one of {names}; it is submitted afterwards")


def _fulfilled(wanted: DependsOn, status: SlurmJobStatus) -> bool | None:
    """Whether the dependency is met; None while the other SlurmJob may still meet it."""
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


def _slurm_can_wait(job: SlurmJob, cluster: str, other: SlurmJob) -> bool:
    spec, status = other.spec, other.status
    same = chosen_cluster(other) == cluster and spec.service_account_name == job.spec.service_account_name
    one_attempt = spec.backoff_limit == 0 and not spec.suspend and not is_suspended_to_restart(status)
    return same and one_attempt and status.job_id is not None


def _can_never_start(wanted: DependsOn, status: SlurmJobStatus) -> str:
    needed = "failure" if wanted.type is DependencyType.AFTERNOTOK else "success"
    return (
        f"depends on the {needed} of SlurmJob {wanted.name}, which ended {status.phase}: it can never start. "
        f"{APPLY_AGAIN}"
    )


def _cycle(job: SlurmJob, depends_on: Names) -> list[str]:
    """The path of names from the job back to itself, if there is one. Chains may be thousands long.

    One step for each SlurmJob, not for each dependency: there may be 64 times as many.
    """
    before = {wanted.name: job.name for wanted in job.spec.depends_on}  # by name: the one that depends on it
    pending = list(before)
    while pending and job.name not in before:
        dependent = pending.pop()
        new = set(depends_on(dependent)).difference(before)
        before.update(dict.fromkeys(new, dependent))
        pending += new
    if job.name not in before or (job.spec.depends_on_any and not _all_lead_back(job, depends_on)):
        return []
    path = [job.name, before[job.name]]
    while path[-1] != job.name:
        path.append(before[path[-1]])
    return path[::-1]


def _all_lead_back(job: SlurmJob, depends_on: Names) -> bool:
    """Whether each of its dependencies waits for the job in the end: any other one lets it start."""
    wanted = {wanted.name for wanted in job.spec.depends_on}
    if any(name != job.name and not depends_on(name) for name in wanted):
        return False
    dependents: dict[str, list[str]] = {}
    found, pending = {job.name, *wanted}, list(wanted - {job.name})
    while pending:
        name = pending.pop()
        names = depends_on(name)
        for other in names:
            dependents.setdefault(other, []).append(name)
        new = set(names).difference(found)
        found |= new
        pending += new
    leading, pending = {job.name}, [job.name]
    while pending:
        new = set(dependents.get(pending.pop(), ())).difference(leading)
        leading |= new
        pending += new
    return wanted <= leading
