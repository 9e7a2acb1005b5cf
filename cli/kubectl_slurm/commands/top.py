"""`top`: what running jobs use, against what they asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kubectl_slurm.errors import PluginError
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.options import invocation_of, parser_of
from kubectl_slurm.slurmjobs.access import get_job, list_jobs
from kubectl_slurm.slurmjobs.clusters import cluster_of
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.redbox_requests import access_of
from kubectl_slurm.slurmjobs.usage import UsedSoFar, asked_for, percent
from kubectl_slurm.terminal.screen import note
from kubectl_slurm.terminal.table import Column, Row, render
from kubectl_slurm.terminal.times import elapsed, megabytes

TEXT = (
    "What running jobs use, against what they asked for, as Slurm measured it. Needs the right to create "
    "tokens of the jobs' service account, and a way to red-box."
)
COLUMNS = (
    Column("JOBID", right=True, importance=6),
    Column("NAME", importance=9, longest=32),
    Column("ELAPSED", right=True, importance=3),
    Column("CPUS", right=True, importance=5),
    Column("CPUTIME", right=True, importance=2),
    Column("CPU%", right=True, importance=8),
    Column("MEMORY", right=True, importance=7),
    Column("ASKED", right=True, importance=4),
    Column("MEM%", right=True, importance=8),
)
Report = Mapping[str, Any]


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = parser_of(command, TEXT)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--noheader", action="store_true", help="no headings")
    options = parser.parse_args(words)
    call = invocation_of(options, given, environment)
    named = [get_job(call.kubectl, name) for name in options.names]
    for job in named:
        if job.finished and job.in_slurm:
            note(f"{job.name} has ended: on the login node `seff {job.job_id}` shows what it used.")
    jobs = [job for job in named or list_jobs(call.kubectl) if job.in_slurm and job.running]
    if not jobs:
        note(f"No {'such ' if named else ''}SlurmJob of namespace {call.kubectl.namespace} runs.")
        return 0
    reports = _reports(call.kubectl, jobs)
    rows = [_row(job, reports.get(job.uid)) for job in jobs]
    call.screen.write(render(COLUMNS, rows, call.screen, headings=not options.noheader))
    missing = [job.name for job in jobs if job.uid not in reports]
    if missing:
        note(f"Slurm has no measurement (yet) of {', '.join(missing)}.")
    return 0


def _reports(kubectl: Kubectl, jobs: Iterable[SlurmJobView]) -> dict[str, Report]:
    """What red-box measured of each job, by its uid: one question for each service account."""
    reports: dict[str, Report] = {}
    by_account: dict[tuple[str, str, str], list[SlurmJobView]] = {}
    for job in jobs:
        by_account.setdefault((job.endpoint, job.cluster, job.service_account), []).append(job)
    for (*_, account), its_jobs in by_account.items():
        try:
            access = access_of(kubectl, cluster_of(kubectl, its_jobs[0]), account)
            measured = {(item["key"], item["attempt"]): item for item in access.get("/v1/usage")["items"]}
        except PluginError as error:
            note(f"{', '.join(job.name for job in its_jobs)}: {error}")
            continue
        reports |= {job.uid: found for job in its_jobs if (found := measured.get((job.uid, job.attempt)))}
    return reports


def _row(job: SlurmJobView, report: Report | None) -> Row:
    asked = asked_for(job)
    took_s = job.elapsed_s(datetime.now(UTC))
    used = UsedSoFar(float(report["cpuSeconds"]), int(report["memoryBytes"])) if report else None
    return [
        job.job_id,
        job.name,
        elapsed(took_s),
        str(asked.cpus or "?"),
        elapsed(used.cpu_s) if used else "?",
        percent(used.cpu_share(asked, took_s) if used else None),
        megabytes(used.memory_bytes / (1024 * 1024)) if used else "?",
        megabytes(asked.mem_mb) if asked.mem_mb else "?",
        percent(used.memory_share(asked) if used else None),
    ]
