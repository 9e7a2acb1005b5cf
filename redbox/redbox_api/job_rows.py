"""Rows of jobs, checked: is it the job that was asked for, and may it have ended.

Controllers end pods, retry jobs and lift finalizers by a job's phase. A red-box that is broken, or lies, must
not have them let go of a job that runs: so a row that speaks against its own end counts as of a job that
lives, with a reason and a message that say so.
"""

from __future__ import annotations

from collections.abc import Iterable

from redbox_api.errors import FOREIGN, Unreachable
from redbox_api.models import FINAL_PHASES, Job, Phase
from redbox_shared.job_end import CONTRADICTION, contradiction, contradiction_message, living_phase

END_FIELDS = {
    *("phase", "state", "job_id", "exit_code", "signal", "started_at", "nodes", "array", "is_pod", "pod"),
}


def checked(job: Job) -> Job:
    """The row itself, or as of a job that lives where it contradicts its end."""
    if job.phase not in FINAL_PHASES:
        return job
    fields = job.model_dump(by_alias=True, include=END_FIELDS)
    why = contradiction(fields)
    if not why:
        return job
    return job.model_copy(
        update={
            "phase": Phase(living_phase(fields)),
            "reason": CONTRADICTION,
            "message": contradiction_message(why),
            "exit_code": None,
            "signal": None,
            "ended_at": None,
            "no_sign_of_start": False,
        }
    )


def answer_about(job: Job, key: str, attempt: int) -> Job:
    """The checked row of this attempt; an answer about another job says nothing about this one."""
    if (job.key, job.attempt) != (key, attempt):
        raise Unreachable(f"/v1/jobs/{key}: {FOREIGN}: it is about another job")
    return checked(job)


def cancelled_attempts(jobs: Iterable[Job], key: str, attempt: int | None) -> list[Job]:
    """The checked rows of a cancel of this attempt, or of all (None); without one red-box says so."""
    rows = [checked(job) for job in jobs if job.key == key and attempt in (None, job.attempt)]
    if not rows:
        raise Unreachable(f"/v1/jobs/{key}: {FOREIGN}: it names no job that was cancelled")
    return rows
