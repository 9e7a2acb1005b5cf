"""`redbox recover`: a lost journal, rebuilt from the marks on Slurm's own records.

Keys, attempts, states and owners' digests are restored; owners' names follow with the owners' next request
(`store.ownership`). Submits that Slurm never accepted are gone with the journal: such keys are submitted when
they are PUT again, behind the fence. A mark that does not verify, or verifies twice, is printed and skipped.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from redbox.core.clock import Clock, with_deadline
from redbox.core.domain import JobKey, UnixUser
from redbox.core.observations import Observation
from redbox.core.output_patterns import RUNNER_LOG
from redbox.core.workload_manager import WorkloadManager
from redbox.jobs.errors import JournalError
from redbox.jobs.queue_snapshot import submit_order, was_refused
from redbox.jobs.record.marks import PREFIX, Mark, Marks
from redbox.jobs.record.record import JobRecord, Stage
from redbox.jobs.record.state_machine import StateMachine
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.ownership import unclaimed_owner
from redbox.jobs.store.sqlite import JournalBatch
from redbox.jobs.submit.takeover_fence import TAKEN_OVER_AT

CALL_LIMIT_S = 300.0  # a month of accounting
RECOVERED_GRACE_S = 45  # of a pod, whose own was in the journal: Kubernetes' default, and the runner's end


@dataclass(frozen=True, slots=True)
class RejectedJob:
    """A job whose mark was not accepted, and why."""

    job: Observation
    why: str


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """The records that Slurm's own records yield."""

    records: tuple[JobRecord, ...]
    rejected: tuple[RejectedJob, ...]
    complete: bool  # False: jobs may have been hidden, or the accounting could not be asked


def rebuild(
    jobs: Iterable[Observation], marks: Marks, now: datetime, machine: StateMachine
) -> RecoveryResult:
    """Records from jobs: of each mark the earliest job, as the queue rather than history shows it. Pure.

    Rows that Slurm keeps of refused submits do not count: a key with no other row is not restored.
    """
    verified: dict[str, tuple[Mark, list[Observation]]] = {}
    rejected = []
    for job in jobs:
        mark = marks.verify(job.mark, job.uid)
        if mark is not None and was_refused(job):
            continue
        if mark is not None:
            verified.setdefault(job.mark, (mark, []))[1].append(job)
        elif job.mark.startswith(PREFIX):
            rejected.append(RejectedJob(job, "its mark was not made by this red-box for a job of this user"))
    records = []
    for mark, jobs_of_mark in verified.values():
        first = min(jobs_of_mark, key=submit_order).job_id
        rejected += [
            RejectedJob(job, f"job {first} carries the same mark and is older")
            for job in jobs_of_mark
            if job.job_id != first
        ]
        same = [job for job in jobs_of_mark if job.job_id == first]
        shown = max(same, key=lambda job: (job.live, job.restarts, job.started_at or now))
        records.append(_record(mark, machine.with_ended_tasks(shown, same), now, machine))
    return RecoveryResult(tuple(records), tuple(rejected), complete=True)


def _record(mark: Mark, job: Observation, now: datetime, machine: StateMachine) -> JobRecord:
    submitted_at = job.submitted_at or now
    pod = is_pod(job)
    record = JobRecord(
        key=JobKey(unclaimed_owner(mark), mark.key, mark.attempt),
        user=UnixUser(job.user or str(job.uid), job.uid),
        mark=job.mark,
        body_id=mark.body_id,
        job_name=job.name,
        working_directory=job.working_directory,
        credentials=pod,
        is_pod=pod,
        grace_s=RECOVERED_GRACE_S if pod else 0,
        created_at=submitted_at,
        last_submit_at=submitted_at,
        stage=Stage.BOUND,
        job_id=job.job_id,
        bound_at=submitted_at,
    )
    return machine.observe(record, job, now)


def is_pod(job: Observation) -> bool:
    """By the output that red-box gives to a pod's job: Slurm has no other sign of it.

    A user's own job can have the same: then a cancel of it signals its script first, and no more.
    """
    name = posixpath.basename(job.stdout or "")
    return name in {RUNNER_LOG, RUNNER_LOG.replace("%j", job.job_id)}


async def recover(
    workload: WorkloadManager, marks: Marks, clock: Clock, settings: JobsSettings, users: Collection[UnixUser]
) -> RecoveryResult:
    """Ask the queue for all jobs, the accounting for these users and those whose marks the queue shows."""
    now = clock.now()
    poll = await with_deadline(clock, CALL_LIMIT_S, workload.poll())
    submitters = {
        UnixUser(job.user, job.uid) for job in poll.jobs if job.user and marks.verify(job.mark, job.uid)
    }
    jobs, complete = list(poll.jobs), poll.complete
    for user in sorted(submitters | set(users), key=lambda user: user.uid):
        since = now - timedelta(seconds=settings.keep_final_s)
        history = await with_deadline(clock, CALL_LIMIT_S, workload.history_of(user, since=since))
        jobs += history.jobs
        complete = complete and history.complete
    recovered = rebuild(jobs, marks, now, StateMachine(workload.states, settings))
    return RecoveryResult(recovered.records, recovered.rejected, complete)


async def write(journal: Journal, recovered: RecoveryResult, now: datetime) -> None:
    """Fill a new journal, and fence it: what the server before this one sent may still arrive."""
    if journal.take_contents().records:
        raise JournalError(
            "This journal holds jobs: recover writes a new one only. Move the old one away first."
        )
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(fault: JournalError | None) -> None:
        if fault is None:
            done.set_result(None)
        else:
            done.set_exception(fault)

    numbered = tuple(replace(record, revision=number) for number, record in enumerate(recovered.records, 1))
    facts = ((TAKEN_OVER_AT, str(now.timestamp())),)
    journal.commit(JournalBatch(save=numbered, facts=facts), answered)
    await done
