"""A job that is waited for: from its creation to Slurm's answer, and to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from kubectl_slurm.errors import PluginError, Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.access import watch_job
from kubectl_slurm.slurmjobs.clusters import list_clusters
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.terminal.screen import note, one_line
from redbox_shared.explanations.redbox_problems import without_title

MISSING_DEPENDENCY = "DependencyMissing"
SUBMITTED_WITHIN = timedelta(seconds=60)


def until_submitted(kubectl: Kubectl, job: SlurmJobView) -> SlurmJobView:
    """Once Slurm has it, or has refused it; after a minute, or where it waits for a person, as it is then."""
    until = datetime.now(UTC) + SUBMITTED_WITHIN
    last, current = "", job
    for current in watch_job(kubectl, job, say=note, until=until):
        if current.in_slurm or current.finished:
            break
        if current.reason == MISSING_DEPENDENCY:
            break  # somebody has to create it
        if current.message and current.message != last:
            last = current.message
            note(f"{current.name} waits: {without_title(one_line(current.message))}")
    return current


def until_begun(kubectl: Kubectl, job: SlurmJobView) -> SlurmJobView:
    """Once it runs or has ended; says each change of why it waits."""
    last: tuple[str, str] | None = None
    current = job
    for current in watch_job(kubectl, job, say=note):
        if current.finished or current.running:
            break
        if (why := (current.phase, current.reason)) != last:
            last = why
            note(_waiting(current))
    return current


def until_finished(kubectl: Kubectl, job: SlurmJobView) -> SlurmJobView:
    current = job
    for current in watch_job(kubectl, job, say=note):
        if current.finished:
            break
    return current


def _waiting(job: SlurmJobView) -> str:
    words = one_line(job.message) or (f"Slurm says {job.reason}." if job.reason not in {"", "None"} else "")
    return f"{job.name} is {job.phase}. {words}".strip()


@contextlib.contextmanager
def going_on(job: Callable[[], SlurmJobView]) -> Iterator[None]:
    """Ctrl-C ends the looking, and not the job."""
    try:
        yield
    except KeyboardInterrupt:
        name = job().name
        note(
            f"\n{name} goes on. `kubectl slurm cancel {name}` cancels it, `kubectl slurm logs -f {name}` "
            "follows it again."
        )
        raise


def end_of(job: SlurmJobView) -> str:
    """How it ended, in one sentence."""
    state = job.state or job.phase.upper()
    what = f"Slurm job {job.job_id}" if job.in_slurm else "It was not submitted"
    exit_code = job.status.get("exitCode")
    code = f", exit code {exit_code}" if exit_code else ""
    message = f" {one_line(job.message)}" if job.message and job.phase != "Succeeded" else ""
    if not job.in_slurm:
        return f"{job.name} was {_not_submitted(job)}.{message}"
    return f"{job.name} ended {state}{code} ({what}).{message}"


def with_partitions(kubectl: Kubectl, job: SlurmJobView) -> str:
    """Slurm's refusal; where it is about the partition, with those that there are."""
    text = without_title(one_line(job.message))
    if "partition" not in text.lower():
        return text
    with contextlib.suppress(PluginError):
        for cluster in list_clusters(kubectl):
            if cluster.partition_names and job.cluster_key in {"", cluster.key}:
                listed = ", ".join(map(one_line, cluster.partition_names))
                return f"{text} The partitions of {cluster.name}: {listed}."
    return text


def refused(kubectl: Kubectl, job: SlurmJobView) -> Refusal:
    return Refusal(f"{job.name} was {_not_submitted(job)}: {with_partitions(kubectl, job)}")


def _not_submitted(job: SlurmJobView) -> str:
    return "cancelled" if job.phase == "Cancelled" else "refused"
