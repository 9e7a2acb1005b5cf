"""What jobs use, and what ended ones used, as red-box reads it from Slurm: asked as each job's identity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from kubectl_slurm.errors import PluginError
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.redbox.answers import (
    AttemptUsage,
    RunningUsage,
    RunningUsages,
    UsageAtEnd,
    UsagesAtEnd,
)
from kubectl_slurm.slurmjobs.redbox.requests import access_of_job, by_account, names_of
from kubectl_slurm.terminal.screen import note

MOST_JOBS = 50
"""In one request about ended jobs."""
Report = TypeVar("Report", bound=AttemptUsage)


def measured(kubectl: Kubectl, jobs: Iterable[SlurmJobView]) -> dict[str, RunningUsage]:
    """Reports about running jobs, by their uids: one request for each service account."""
    reports: dict[str, RunningUsage] = {}
    for its_jobs in by_account(jobs):
        try:
            answer = access_of_job(kubectl, its_jobs[0]).get(RunningUsages, "/v1/usage")
            reports |= _reports(its_jobs, answer.items)
        except PluginError as error:
            note(f"{names_of(its_jobs)}: {error}")
    return reports


def measured_at_end(kubectl: Kubectl, jobs: Iterable[SlurmJobView]) -> dict[str, UsageAtEnd]:
    """Reports about ended jobs, by their uids; a note names those that have none, and why."""
    reports: dict[str, UsageAtEnd] = {}
    for its_jobs in by_account(jobs):
        try:
            access = access_of_job(kubectl, its_jobs[0])
            for start in range(0, len(its_jobs), MOST_JOBS):
                asked = its_jobs[start : start + MOST_JOBS]
                query = urlencode([("job", f"{job.uid}.{job.attempt}") for job in asked])
                answer = access.get(UsagesAtEnd, f"/v1/usage/ended?{query}")
                if not answer.accounting:
                    note(
                        f"{names_of(its_jobs)}: Slurm has no accounting there, which would have what it used."
                    )
                    break
                found = _reports(asked, answer.items)
                reports |= found
                _note_missing([job for job in asked if job.uid not in found])
        except PluginError as error:
            note(f"{names_of(its_jobs)}: {error}")
    return reports


def _note_missing(jobs: Sequence[SlurmJobView]) -> None:
    if jobs:
        note(f"Slurm's accounting has no usage of {names_of(jobs)} (yet): ask again in a minute.")


def _reports(jobs: Iterable[SlurmJobView], reports: Iterable[Report]) -> dict[str, Report]:
    by_attempt = {(report.key, report.attempt): report for report in reports}
    return {job.uid: found for job in jobs if (found := by_attempt.get((job.uid, job.attempt)))}
