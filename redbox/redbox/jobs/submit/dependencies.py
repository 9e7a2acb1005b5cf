"""Dependencies on other jobs of the same owner, named by key, as Slurm wants them: by job id. Pure.

Slurm forgets jobs and then refuses to depend on them; what a forgotten job's end means is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redbox.jobs.errors import JobsBusy, NotAcceptable
from redbox.jobs.record.record import JobDependency, JobRecord
from redbox_api.models import Dependency, Phase

Lookup = Callable[[str], Sequence[JobRecord]]  # all attempts of a key of the same owner


def resolve(dependencies: Sequence[Dependency], attempts_of: Lookup) -> tuple[JobDependency, ...]:
    """With Slurm's ids; those that are already fulfilled are left out."""
    resolved = (_resolved(dependency, attempts_of) for dependency in dependencies)
    return tuple(dependency for dependency in resolved if dependency is not None)


def _resolved(dependency: Dependency, attempts_of: Lookup) -> JobDependency | None:
    if dependency.key is None:
        return JobDependency(dependency.type, None, dependency.job_id)
    attempts = attempts_of(dependency.key)
    if not attempts:
        raise NotAcceptable(
            f"It depends on {dependency.key}, and you have no job of this key: submit that one first."
        )
    latest = max(attempts, key=lambda record: record.key.attempt)
    if latest.final and not latest.in_queue:
        _refuse_unless_fulfilled(dependency, latest)
        return None
    if latest.job_id is None:
        raise JobsBusy(f"It depends on {dependency.key}, which is still being submitted.", retry_after=3)
    return JobDependency(dependency.type, dependency.key, latest.job_id)


def _refuse_unless_fulfilled(dependency: Dependency, record: JobRecord) -> None:
    succeeded = record.phase is Phase.SUCCEEDED
    if dependency.type in ("afterok", "aftercorr") and not succeeded:
        raise NotAcceptable(
            f"It depends on the success of {dependency.key}, which ended {record.phase}: it can never start."
        )
    if dependency.type == "afternotok" and succeeded:
        raise NotAcceptable(
            f"It depends on the failure of {dependency.key}, which succeeded: it can never start."
        )
