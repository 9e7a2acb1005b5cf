"""The way out of a deleted SlurmJob: its jobs cancelled, their end awaited, then the finalizer lifted.

It waits without limit, and says what for. The order given to red-box leaves a tombstone there, so that no
companion can submit afterwards. Two audited ways out wait for nothing: the annotation redbox.dev/abandon on
the SlurmJob, and `abandonJobs` on its SlurmCluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from redbox_api.errors import NoSuchJob, RedboxError
from redbox_api.feed import RowKey
from redbox_api.models import FINAL_PHASES, Job
from redbox_kube.api.events import WARNING
from redbox_kube.api.objects import Object
from redbox_kube.runtime.clock import now
from redbox_operator.api.conditions import Said, Telling, conditions_of, tellings
from redbox_operator.api.constants import ANNOTATION_ABANDON, FINALIZER
from redbox_operator.api.problems import Problem
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_status import Condition, ConditionType, SlurmJobStatus, Truth
from redbox_operator.object_cache import KnownJob
from redbox_operator.slurmcluster.job_feed import RedboxLink, RedboxUnavailable
from redbox_operator.status_writer import Writer, where_is

log = structlog.get_logger(__name__)
LOOKS_AGAIN_S = 10.0


class Ending:
    """Brings deleted SlurmJobs to their end."""

    def __init__(self, writer: Writer, written: Callable[[KnownJob, Object], object]) -> None:
        """`written` hears of each SlurmJob that was written, as it is now."""
        self._writer = writer
        self._written = written

    async def end(self, known: KnownJob, link: RedboxLink | Problem) -> float | None:
        """One step; when to look again, if not only after the next change. A Problem: there is no link."""
        job, status = known.job, known.status
        if FINALIZER not in job.finalizers:
            return None
        reason = _abandoned(job, link)
        if reason:
            await self._tell_abandoned(job, status, reason)
        else:
            wait = await self._waits_for(job, status, link)
            if wait:
                await self._say(known, wait)
                return LOOKS_AGAIN_S
        left = [one for one in job.finalizers if one != FINALIZER]
        version = str(job.metadata["resourceVersion"])
        lifted = await self._writer.finalizers(where_is(job.place), left, version=version)
        if lifted is not None:
            log.info("finalizer lifted", slurmjob=f"{job.namespace}/{job.name}", job_id=status.job_id)
        return None if lifted is not None else 1.0

    async def _waits_for(self, job: SlurmJob, status: SlurmJobStatus, link: RedboxLink | Problem) -> str:
        """What has to happen before it may go, in words; nothing if it may."""
        if isinstance(link, Problem):
            if status.finished or not status.companion:
                return ""
            return (
                f"its job cannot be cancelled: {link.message}. Or annotate this with "
                f"{ANNOTATION_ABANDON}=true to leave the job to itself"
            )
        try:
            left = await _cancel(job, link)
        except NoSuchJob:
            trouble = _not_known(status.job_id, link) if status.job_id else ""
        except RedboxUnavailable as away:
            if not away.until_return:
                raise
            trouble = f"{_not_cancelled(link)} is away ({away}). {_goes_on('is back')}"
        except RedboxError as refusal:
            trouble = f"{_not_cancelled(link)} says: {refusal}. {_goes_on('does it')}"
        else:
            return _waits_for_slurm(left)
        return "" if status.finished else trouble

    async def _say(self, known: KnownJob, message: str) -> None:
        job, status = known.job, known.status
        kept = [_as_said(one) for one in status.conditions if one.type != ConditionType.FINISHED]
        said = [*kept, Said(ConditionType.FINISHED, holds=False, reason="Cancelling", message=message)]
        generation = job.metadata.get("generation")
        conditions = conditions_of(status.conditions, said, now(), generation)
        after = status.model_copy(update={"message": message, "conditions": conditions})
        if after == status:
            return
        where = where_is(job.place)
        if written := await self._writer.status(where, job.uid, after.written()):
            self._written(known, written)
            await self._writer.tell(where, job.uid, tellings(status.conditions, conditions))

    async def _tell_abandoned(self, job: SlurmJob, status: SlurmJobStatus, reason: str) -> None:
        left = f"Slurm job {status.job_id or 'unknown'} on {status.cluster} may run on"
        message = f"left to itself ({reason}): {left}"
        log.warning("abandoned", slurmjob=f"{job.namespace}/{job.name}", job_id=status.job_id, why=reason)
        condition = Condition(
            type="Abandoned",
            status=Truth.TRUE,
            reason="Abandoned",
            message=message,
            last_transition_time=now(),
        )
        told = Telling(WARNING, "Abandoned", message, condition)
        await self._writer.tell(where_is(job.place), job.uid, [told])


async def _cancel(job: SlurmJob, link: RedboxLink) -> list[Job]:
    """The jobs that have not ended yet, all told to."""
    wanted = RowKey(job.uid, 1, job.namespace, job.spec.service_account_name)
    cancelled = await link.cancel(wanted, all_attempts=True)
    return [row for row in cancelled if row.phase not in FINAL_PHASES]


def _waits_for_slurm(left: Sequence[Job]) -> str:
    names = ", ".join(row.job_id or "the one that is being submitted" for row in left)
    return f"waits for Slurm to end its job: {names}" if left else ""


def _not_cancelled(link: RedboxLink) -> str:
    return f"its job cannot be cancelled: red-box of SlurmCluster {link.cluster.name}"


def _goes_on(when: str) -> str:
    return f"It goes on when that {when}; {ANNOTATION_ABANDON}=true leaves the job to itself"


def _not_known(job_id: str, link: RedboxLink) -> str:
    """Its journal was lost, or this is another red-box than the one that submitted it."""
    return (
        f"{_not_cancelled(link)} does not know of it, though it was submitted as Slurm's job {job_id}. "
        f"`redbox recover` on the login node brings it back. {_goes_on('knows of it')}"
    )


def _abandoned(job: SlurmJob, link: RedboxLink | Problem) -> str:
    if job.annotations.get(ANNOTATION_ABANDON) == "true":
        return f"annotation {ANNOTATION_ABANDON}"
    if not isinstance(link, Problem) and link.cluster.spec.abandon_jobs:
        return f"spec.abandonJobs of SlurmCluster {link.cluster.name}"
    return ""


def _as_said(condition: Condition) -> Said:
    holds = condition.status is Truth.TRUE
    return Said(ConditionType(condition.type), holds, condition.reason, condition.message)
