"""Actions that SlurmJobs request by an annotation: requeue or release a run, cancel tasks or the SlurmJob.

The annotation of a requeue names the run, and red-box requeues that run alone. So a request that is sent
twice, or by the next operator, is harmless. One that was refused is not sent again: another annotation asks
again. So it is with the release of a job that Slurm holds, also where it is a retry.

A cancel is that of a deletion: red-box journals it, cancels what it has, and rejects what a companion may
still submit. So it is safe at any moment of a submit, and it is sent until red-box has taken it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from redbox_api.errors import Conflict, NoSuchJob, NotAccepted, NotAllowed, RedboxError, Refused
from redbox_api.feed import RowKey
from redbox_api.models import FINAL_PHASES, Job
from redbox_kube.api.events import NORMAL, WARNING, Event
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.constants import FIELD_MANAGER
from redbox_operator.api.slurmjob import SlurmJob, path_of
from redbox_operator.slurmcluster.job_feed import RedboxLink, RedboxUnavailable
from redbox_operator.slurmjob import attempts
from redbox_operator.slurmjob.attempt_state import (
    AttemptState,
    asks_release,
    cancel_requested,
    is_held_by_slurm,
    is_recorded,
    requested_requeue,
    requested_task_cancels,
)
from redbox_operator.slurmjob.attempts import CancelState
from redbox_shared import requested_actions
from redbox_shared.requested_actions import (
    CANCEL_TASKS_REFUSED,
    RELEASE_REFUSED,
    REQUEUE_REFUSED,
    TASKS_CANCELLED,
    asks_for,
    of_run,
    tasks_in,
)

REQUEUE, RELEASE, CANCEL_TASK = "requeue", "release", "cancel-task"
REQUEUED = "Requeued"
SUBMITTING = "the one that is being submitted"


class RequestedActions:
    """Sends what annotations request, and remembers what has its outcome, such as a requeue."""

    def __init__(self, writer: StatusWriter) -> None:
        self._writer = writer
        self._requeues: dict[str, tuple[str, bool]] = {}  # by the SlurmJob's uid; whether Slurm has done it
        self._settled_tasks: dict[str, str] = {}  # likewise
        self._refused_releases: dict[str, str] = {}  # likewise

    async def act_on_run(self, state: AttemptState, link: RedboxLink, row: Job) -> None:
        """Requeue the run, or else cancel its tasks, as they are requested.

        Raises what may succeed later: Busy, RedboxUnavailable.
        """
        requeue = requested_requeue(state.job, row)
        if requeue is not None and await self._requeue(state, link, row, requeue):
            return  # the next run has begun, though the row may not show it yet
        tasks = requested_task_cancels(state.job, row)
        if tasks is not None:
            await self._cancel_tasks(state, link, tasks)

    async def _requeue(self, state: AttemptState, link: RedboxLink, row: Job, requested: str) -> bool:
        """Whether Slurm has done it, now or before."""
        uid = state.job.uid
        settled, done = self._requeues.get(uid, ("", False))
        if settled == requested:
            return done
        try:
            await link.act(state.row_key, REQUEUE, run=row.run)
        except (Conflict, NotAccepted, NotAllowed) as refusal:
            done = False
            await self._publish(state, REQUEUE, requested, REQUEUE_REFUSED, refusal.problem.detail)
        else:
            done = True
            await self._publish(state, REQUEUE, requested, REQUEUED, "Slurm has it in its queue again.")
        self._requeues[uid] = requested, done
        return done

    async def _cancel_tasks(self, state: AttemptState, link: RedboxLink, requested: str) -> None:
        """Sent again after what may succeed later: those that are cancelled already are so again."""
        uid = state.job.uid
        if self._settled_tasks.get(uid) == requested:
            return
        tasks, left_out = tasks_in(requested)
        refused = [left_out] if left_out else []
        for task in tasks:
            try:
                await link.act(state.row_key, CANCEL_TASK, task=task)
            except (Conflict, NotAccepted, NotAllowed, NoSuchJob) as refusal:
                refused.append(f"task {task}: {refusal.detail}")
        reason = CANCEL_TASKS_REFUSED if refused else TASKS_CANCELLED
        words = "; ".join(refused) or "Slurm has cancelled them."
        await self._publish(state, CANCEL_TASK, requested, reason, words)
        self._settled_tasks[uid] = requested

    async def hold_or_release(self, state: AttemptState, link: RedboxLink, row: Job, action: str) -> bool:
        """False: Slurm holds it, and its release was refused. Raises what may succeed later."""
        try:
            await link.act(state.row_key, action)
        except (NotAccepted, NotAllowed) as refusal:
            if action != RELEASE or not (is_held_by_slurm(state, row) or asks_release(state, row)):
                raise
            requested = _release_of(state.job, row)
            await self._publish(state, RELEASE, requested, RELEASE_REFUSED, refusal.problem.detail)
            self._refused_releases[state.job.uid] = requested
            return False
        return True

    def release_refused(self, job: SlurmJob, row: Job | None) -> bool:
        """Whether the release of this run, as it is requested now, was refused."""
        refused = self._refused_releases.get(job.uid)
        return refused is not None and row is not None and refused == _release_of(job, row)

    def forget(self, uid: str) -> None:
        """The SlurmJob is gone."""
        self._requeues.pop(uid, None)
        self._settled_tasks.pop(uid, None)
        self._refused_releases.pop(uid, None)

    async def _publish(
        self, state: AttemptState, action: str, requested: str, reason: str, words: str
    ) -> None:
        job = state.job
        event = Event(
            about=path_of(job.ref),
            uid=job.uid,
            change=f"{reason}|{requested}",
            severity=NORMAL if reason in {REQUEUED, TASKS_CANCELLED} else WARNING,
            reason=reason,
            message=f"{requested}: {words}",
            action=action,
            component=FIELD_MANAGER,
            is_answer=requested in job.annotations.values(),  # a retry's release has none
        )
        await self._writer.publish_event(event)


def _release_of(job: SlurmJob, row: Job) -> str:
    """The annotation that asks for it, or as one would, of a retry."""
    job_id, requested = row.job_id or "", job.annotations.get(requested_actions.RELEASE, "")
    return requested if asks_for(requested, job_id, row.run) else of_run(job_id, row.run)


async def cancelled(state: AttemptState, no_link: str) -> AttemptState:
    """The state after the cancel that the SlurmJob requests, if it does; `no_link`: why it has no red-box."""
    job, link, row = state.job, state.link, state.row
    lives = row is not None and row.phase not in FINAL_PHASES
    if not cancel_requested(job) or (job.status.finished and not lives):
        return state
    if row is not None and (row.phase in FINAL_PHASES or row.cancel_requested):
        return replace(state, cancel=waiting_for([row]))
    if link is None:
        # Without a companion nothing can have been submitted.
        return replace(state, cancel=CancelState(no_link if job.status.companion else ""))
    cancel, rows = await cancel_all(job, link)
    own = next((found for found in rows if found.attempt == state.attempt.number), None)
    if row is None and own is not None and not is_recorded(job.status, own):
        row = own
    return replace(state, row=row, cancel=cancel)


async def cancel_all(job: SlurmJob, link: RedboxLink) -> tuple[CancelState, Sequence[Job]]:
    """Cancel all attempts of a SlurmJob, and those that may still come; returns its rows at red-box."""
    status = job.status
    first = RowKey(job.uid, 1, job.namespace, job.spec.service_account_name)
    red_box = f"red-box of {link.cluster.title}"
    try:
        rows = await link.cancel(first, all_attempts=True)
    except NoSuchJob:
        if alive := _alive_by_watch(job, link, first):
            obstacle = f"{red_box} answers that there is no such job, and shows {', '.join(alive)} alive"
            return CancelState(obstacle, "shows the job's end"), ()
        if status.finished or not status.job_id:
            return CancelState(), ()
        # Its journal was lost, or this is another red-box than the one that submitted it.
        obstacle = (
            f"{red_box} has no record of it, though it was submitted as Slurm's job {status.job_id}. "
            "The HPC administrator restores the record by `redbox recover`"
        )
        return CancelState(obstacle, "has the record"), ()
    except RedboxUnavailable as away:
        if not away.until_return:
            raise
        obstacle, continues = f"{red_box} is away ({away})", "is back"
    except Refused as refusal:
        obstacle, continues = f"{red_box} answers: {refusal.problem.detail}", "accepts the cancel"
    except RedboxError as error:
        obstacle, continues = f"{red_box} answers: {error}", "accepts the cancel"
    else:
        newest = attempts.current(status).number
        if status.job_id and not status.finished and all(row.attempt != newest for row in rows):
            obstacle = (
                f"{red_box} does not name Slurm's job {status.job_id} among those that it cancels. If its "
                "record was lost, the HPC administrator restores it by `redbox recover`"
            )
            return CancelState(obstacle, "names it"), rows
        return waiting_for(rows, _alive_by_watch(job, link, first)), rows
    return CancelState() if status.finished else CancelState(obstacle, continues), ()


def waiting_for(rows: Sequence[Job], alive: Sequence[str] = ()) -> CancelState:
    """Red-box has the cancel: Slurm has yet to end those that live, also by the watch alone."""
    unfinished = [row.job_id or SUBMITTING for row in rows if row.phase not in FINAL_PHASES]
    return CancelState(waits_for=tuple(dict.fromkeys([*unfinished, *alive])))


def _alive_by_watch(job: SlurmJob, link: RedboxLink, first: RowKey) -> list[str]:
    """An answer that they have ended may be wrong."""
    newest = attempts.current(job.status).number
    numbers = (*attempts.older_than(newest), newest)
    rows = [link.rows.get(first._replace(attempt=number)) for number in numbers]
    return [row.job_id or SUBMITTING for row in rows if row is not None and row.phase not in FINAL_PHASES]
