"""When a waiting job would start, in words: Slurm's own estimate, where red-box is reached from here."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus

from kubectl_slurm.errors import PluginError
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.clusters import ClusterView
from kubectl_slurm.slurmjobs.job import SlurmJobView, read_time
from kubectl_slurm.slurmjobs.redbox.answers import StartOfJob
from kubectl_slurm.slurmjobs.redbox.requests import (
    RedboxAccess,
    RedboxRefused,
    access_of,
    access_of_job,
    by_account,
    names_of,
)
from kubectl_slurm.terminal.screen import note
from kubectl_slurm.terminal.times import clock, roughly
from redbox_shared.wire import HELD_BY_SLURM, HELD_REASONS

UNKNOWN = "Slurm's estimate is not known: {}"
MOST_ASKED = 20
"""In one command: red-box lets an account ask so often in a row, then once a second."""
ESTIMATE = "an estimate: it changes when jobs end early, or others come first"


def expected_start(kubectl: Kubectl, job: SlurmJobView, cluster: ClusterView | None) -> str:
    """A sentence, always: without red-box it is why there is no estimate."""
    if cluster is None:
        return UNKNOWN.format("the SlurmCluster cannot be read")
    try:
        return _ask(access_of(kubectl, cluster, job.service_account), job)
    except PluginError as error:
        return UNKNOWN.format(error)


def expected_starts(kubectl: Kubectl, jobs: Iterable[SlurmJobView]) -> dict[str, StartOfJob]:
    """Slurm's estimates of waiting jobs, by their uids; a note says of which there are none, and why."""
    starts = {}
    for its_jobs in by_account(jobs):
        asked, more = its_jobs[:MOST_ASKED], len(its_jobs) - MOST_ASKED
        try:
            access = access_of_job(kubectl, asked[0])
            for job in asked:
                with suppress(RedboxRefused):  # it has started meanwhile, or is not known there
                    starts[job.uid] = access.get(StartOfJob, _path(job))
        except PluginError as error:
            note(f"{names_of(asked)}: {UNKNOWN.format(error)}")
        if more > 0:
            note(f"The first {MOST_ASKED} jobs have their start, {more} others do not: name those you want.")
    return starts


def _path(job: SlurmJobView) -> str:
    return f"/v1/jobs/{job.uid}/expected-start?attempt={job.attempt}"


def _ask(access: RedboxAccess, job: SlurmJobView) -> str:
    try:
        expected = access.get(StartOfJob, _path(job))
    except RedboxRefused as refusal:
        if refusal.status == HTTPStatus.CONFLICT:  # its status in Kubernetes is a moment old
            return f"Slurm job {job.job_id} does not wait any more: ask again in a moment"
        raise
    return in_words(expected, datetime.now(UTC))


def in_words(expected: StartOfJob, now: datetime) -> str:
    """What red-box answers about one job, and how sure it is."""
    if (starts_at := read_time(expected.starts_at)) is not None:
        on = f", on {expected.nodes}" if expected.nodes else ""
        when = f"{clock(starts_at)}, {_from_now(starts_at, now)}"
        return f"Slurm expects it to start at {when}{on} ({ESTIMATE})"
    if (not_before := read_time(expected.not_before)) is not None:
        return f"not before {clock(not_before)}, its begin time; Slurm has no estimate until then"
    match expected.reason:
        case reason if reason in HELD_REASONS | HELD_BY_SLURM:
            return "not before it is released: Slurm has no estimate for a job that is held"
        case "DependencyNeverSatisfied":
            return "never: what it depends on did not end as required"
        case "Dependency":
            return "Slurm has no estimate before the jobs that it depends on have ended"
        case reason:
            because = f" [{reason}]" if reason else ""  # Slurm has none at first
            return (
                f"Slurm has no estimate{because}: its scheduler has not come to this job yet, found no "
                "time for it in the days that it plans, or a limit keeps the job back"
            )


def _from_now(time: datetime, now: datetime) -> str:
    """Slurm shows no time in the past: one that has come is the present."""
    seconds = (time - now).total_seconds()
    return f"in about {roughly(seconds)}" if seconds >= 1 else "at any moment"
