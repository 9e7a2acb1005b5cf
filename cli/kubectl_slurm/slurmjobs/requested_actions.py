"""A requeue, a release or a cancel: requested by an annotation, which the operator acts on.

That of a requeue names job id and run, so that it is done once: the next run has another number. So does that
of a release, of a job that Slurm holds, and that of a cancel of tasks. A requeue and a cancel of tasks are
awaited here. The annotation of a cancel holds for as long as it is there, so that it is done in the end.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from kubectl_slurm.errors import Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.access import events_of, patch, watch_job
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.terminal.screen import note, one_line
from redbox_shared.requested_actions import (
    CANCEL,
    CANCEL_TASKS,
    CANCEL_TASKS_REFUSED,
    RELEASE,
    REQUESTED,
    REQUEUE,
    REQUEUE_REFUSED,
    TASKS_CANCELLED,
    of_run,
)

WITHIN = timedelta(seconds=30)
EACH = timedelta(seconds=3)
PAUSE_S = 1.0
NO_OPERATOR = "does Red Box's operator run, and is it of this release? `kubectl slurm doctor` looks"


def request_cancel(kubectl: Kubectl, job: SlurmJobView) -> SlurmJobView:
    """The SlurmJob with the request, which the operator has done: SlurmJob, record and log stay."""
    return patch(kubectl, job, {"metadata": {"annotations": {CANCEL: REQUESTED}}})


def request_release(kubectl: Kubectl, job: SlurmJobView) -> SlurmJobView:
    """The SlurmJob with the request to release the run that Slurm holds."""
    wanted = of_run(job.job_id, job.run, secrets.token_hex(4))
    return patch(kubectl, job, {"metadata": {"annotations": {RELEASE: wanted}}})


def request_task_cancels(kubectl: Kubectl, job: SlurmJobView, tasks: Sequence[int]) -> None:
    """Once Slurm has cancelled these tasks of the array."""
    wanted = of_run(job.job_id, job.run, f"{','.join(map(str, tasks))}/{secrets.token_hex(4)}")
    patch(kubectl, job, {"metadata": {"annotations": {CANCEL_TASKS: wanted}}})
    give_up_at = datetime.now(UTC) + WITHIN
    while datetime.now(UTC) < give_up_at:
        if _answers(kubectl, job, wanted, TASKS_CANCELLED):
            return
        if refused := _answers(kubectl, job, wanted, CANCEL_TASKS_REFUSED):
            raise Refusal(f"of {job.name} not all tasks were cancelled: {refused[-1]}")
        time.sleep(PAUSE_S)
    raise Refusal(f"tasks of {job.name} were not cancelled within {WITHIN.seconds} s: {NO_OPERATOR}")


def _answers(kubectl: Kubectl, job: SlurmJobView, wanted: str, reason: str) -> list[str]:
    """What events about this very request say."""
    events = events_of(kubectl, "SlurmJob", job.uid)
    words = [str(event.get("message", "")) for event in events if event.get("reason") == reason]
    return [one_line(text.removeprefix(f"{wanted}: ")) for text in words if text.startswith(f"{wanted}: ")]


def request_requeue(kubectl: Kubectl, job: SlurmJobView) -> SlurmJobView:
    """The SlurmJob once Slurm has it in its queue again."""
    wanted = of_run(job.job_id, job.run, secrets.token_hex(4))
    newest = patch(kubectl, job, {"metadata": {"annotations": {REQUEUE: wanted}}})
    last = newest
    give_up_at = datetime.now(UTC) + WITHIN
    while datetime.now(UTC) < give_up_at:
        for newest in watch_job(kubectl, last, say=note, until=datetime.now(UTC) + EACH):
            if newest.run > job.run or newest.job_id != job.job_id:
                return newest
            if newest.finished:
                raise Refusal(f"{job.name} has ended before it could be requeued")
        last = newest
        if refused := _answers(kubectl, job, wanted, REQUEUE_REFUSED):
            raise Refusal(f"{job.name} was not requeued: {refused[-1]}")
    raise Refusal(f"{job.name} was not requeued within {WITHIN.seconds} s: {NO_OPERATOR}")
