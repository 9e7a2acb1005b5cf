"""A requeue, a release or a cancel: requested by an annotation, which the operator acts on.

That of a requeue names job id and run, so that it is done once: the next run has another number. So does that
of a release, of a job that Slurm holds, and that of a cancel of tasks. A requeue and a cancel of tasks are
awaited here. The annotation of a cancel holds for as long as it is there, so that it is done in the end.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from kubectl_slurm.errors import Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.access import events_of, list_events, patch, watch_job
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.terminal.screen import note, one_line
from redbox_shared.requested_actions import (
    CANCEL,
    CANCEL_TASKS,
    CANCEL_TASKS_REFUSED,
    MOST_TASKS,
    RELEASE,
    REQUESTED,
    REQUEUE,
    REQUEUE_REFUSED,
    TASKS_CANCELLED,
    of_run,
)

WITHIN = timedelta(seconds=30)
OF_A_TASK = timedelta(seconds=5)
"""Beyond it, for each task: they are cancelled one after the other."""
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


def request_task_cancels(
    kubectl: Kubectl, job: SlurmJobView, tasks: Sequence[int]
) -> Iterator[Sequence[int] | Refusal]:
    """Those that Slurm has cancelled, request after request, or why one was not done in full.

    The annotation holds one request: the next follows the answer to the last, and none where there is none.
    """
    for begin in range(0, len(tasks), MOST_TASKS):
        some, later = tasks[begin : begin + MOST_TASKS], tasks[begin + MOST_TASKS :]
        wanted = of_run(job.job_id, job.run, f"{_listed(some)}/{secrets.token_hex(4)}")
        patch(kubectl, job, {"metadata": {"annotations": {CANCEL_TASKS: wanted}}})
        try:
            refused = _refusal_of_tasks(kubectl, job, wanted, WITHIN + len(some) * OF_A_TASK)
        except Refusal as unknown:
            rest = f", and that of {_listed(later)} is not" if later else ""
            raise Refusal(
                f"the cancel of tasks {_listed(some)} of {job.name} is requested{rest}; whether it was done "
                f"is not known yet: {unknown}"
            ) from unknown
        yield Refusal(f"of {job.name} not all tasks were cancelled: {refused}") if refused else some


def _refusal_of_tasks(kubectl: Kubectl, job: SlurmJobView, wanted: str, within: timedelta) -> str:
    """Why some were not cancelled, or empty. Raises where that is not known."""
    give_up_at = datetime.now(UTC) + within
    while datetime.now(UTC) < give_up_at:
        events = list_events(kubectl, "SlurmJob", job.uid)
        if _answers(events, wanted, TASKS_CANCELLED):
            return ""
        if refused := _answers(events, wanted, CANCEL_TASKS_REFUSED):
            return refused[-1]
        time.sleep(PAUSE_S)
    raise Refusal(f"`kubectl slurm explain {job.name}` shows it; {NO_OPERATOR}")


def _listed(tasks: Sequence[int]) -> str:
    return ",".join(map(str, tasks))


def _answers(events: Sequence[dict[str, Any]], wanted: str, reason: str) -> list[str]:
    """What events about this very request say."""
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
        if refused := _answers(events_of(kubectl, "SlurmJob", job.uid), wanted, REQUEUE_REFUSED):
            raise Refusal(f"{job.name} was not requeued: {refused[-1]}")
    raise Refusal(f"{job.name} was not requeued within {WITHIN.seconds} s: {NO_OPERATOR}")
