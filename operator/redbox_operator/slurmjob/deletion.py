"""Deletion of a SlurmJob: cancel its jobs, await their end in Slurm, then lift the finalizer.

The wait has no limit, and the status says what it is for. The cancel leaves a tombstone at red-box, so that
no companion can submit afterwards. Three audited exits do not wait: the annotation redbox.dev/abandon on the
SlurmJob, `abandonJobs` on its SlurmCluster or SlurmEndpoint, and a SlurmEndpoint that is gone: it is deleted
with its namespace, which could otherwise never end.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from redbox_kube.api.events import WARNING
from redbox_kube.api.objects import Object
from redbox_kube.runtime.clock import now
from redbox_kube.status.conditions import (
    ConditionEvent,
    ConditionStatus,
    NewCondition,
    StatusCondition,
    conditions_of,
)
from redbox_kube.status.problems import StatusProblem
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.conditions import condition_events
from redbox_operator.api.constants import ANNOTATION_ABANDON, FINALIZER
from redbox_operator.api.slurmjob import SlurmJob, path_of
from redbox_operator.api.slurmjob_status import ConditionType
from redbox_operator.slurmcluster.job_feed import RedboxLink
from redbox_operator.slurmcluster.registry import NO_SUCH_ENDPOINT
from redbox_operator.slurmjob.requested_actions import cancel_all
from redbox_shared.printable import printable

log = structlog.get_logger(__name__)
REQUEUE_AFTER_S = 10.0


class Deletion:
    """Advances deleted SlurmJobs until their finalizer is lifted."""

    def __init__(self, writer: StatusWriter, on_written: Callable[[SlurmJob, Object], object]) -> None:
        """`on_written` is called with each SlurmJob whose status was written, and the object returned."""
        self._writer = writer
        self._on_written = on_written

    async def advance(self, job: SlurmJob, link: RedboxLink | StatusProblem) -> float | None:
        """One step; returns seconds until the next one. `link` is a problem where red-box has no link."""
        status = job.status
        if FINALIZER not in job.finalizers:
            return None
        if reason := _abandon_reason(job, link):
            await self._publish_abandoned(job, reason)
        elif obstacle := await self._obstacle(job, link):
            await self._write_cancelling(job, obstacle)
            return REQUEUE_AFTER_S
        metadata = await self._whole_metadata(job)
        if metadata is None:
            return None
        others = [finalizer for finalizer in metadata.get("finalizers", []) if finalizer != FINALIZER]
        version = str(metadata["resourceVersion"])
        lifted = await self._writer.finalizers(path_of(job.ref), others, version=version)
        if lifted is None:
            return 1.0
        log.info("finalizer lifted", slurmjob=job.ref.full_name, job_id=status.job_id)
        return None

    async def _whole_metadata(self, job: SlurmJob) -> Object | None:
        """With the finalizers of others, which a large one is cached without; None where it is gone."""
        if job.is_whole:
            return job.metadata
        raw = await self._writer.objects.get(path_of(job.ref))
        return raw["metadata"] if raw is not None and raw["metadata"]["uid"] == job.uid else None

    async def _obstacle(self, job: SlurmJob, link: RedboxLink | StatusProblem) -> str:
        """Cancel its jobs; returns why the finalizer has to stay, or an empty text."""
        status = job.status
        if isinstance(link, StatusProblem):
            if status.finished or not status.companion:
                return ""
            return (
                f"its job cannot be cancelled: {link.message}. Or annotate this SlurmJob with "
                f"{ANNOTATION_ABANDON}=true to abandon the job"
            )
        cancel, _ = await cancel_all(job, link)
        if cancel.obstacle:
            return (
                f"its job cannot be cancelled: {cancel.obstacle}. The deletion continues when red-box "
                f"{cancel.continues}; {ANNOTATION_ABANDON}=true abandons the job"
            )
        waits_for = ", ".join(cancel.waits_for)
        return f"waits for Slurm to end its job: {waits_for}" if waits_for else ""

    async def _write_cancelling(self, job: SlurmJob, message: str) -> None:
        status, message = job.status, printable(message)
        others = [_unchanged(item) for item in status.conditions if item.type != ConditionType.FINISHED]
        finished = NewCondition(ConditionType.FINISHED, "Cancelling", message, holds=False)
        conditions = conditions_of(status.conditions, [*others, finished], now(), job.generation)
        after = status.model_copy(update={"message": message, "conditions": conditions})
        if after == status:
            return
        path = path_of(job.ref)
        if written := await self._writer.status(path, job.uid, after.written()):
            self._on_written(job, written)
            await self._writer.publish(path, job.uid, condition_events(status.conditions, conditions))

    async def _publish_abandoned(self, job: SlurmJob, reason: str) -> None:
        status = job.status
        where = status.cluster or status.endpoint
        message = f"abandoned ({reason}): Slurm job {status.job_id or 'unknown'} on {where} may still run"
        log.warning("abandoned", slurmjob=job.ref.full_name, job_id=status.job_id, why=reason)
        condition = StatusCondition(
            type="Abandoned",
            status=ConditionStatus.TRUE,
            reason="Abandoned",
            message=message,
            last_transition_time=now(),
        )
        event = ConditionEvent(WARNING, "Abandoned", message, condition)
        await self._writer.publish(path_of(job.ref), job.uid, [event])


def _abandon_reason(job: SlurmJob, link: RedboxLink | StatusProblem) -> str:
    if job.annotations.get(ANNOTATION_ABANDON) == "true":
        return f"annotation {ANNOTATION_ABANDON}"
    if not isinstance(link, StatusProblem) and link.cluster.spec.abandon_jobs:
        return f"spec.abandonJobs of {link.cluster.title}"
    unfinished = job.status.companion is not None and not job.status.finished
    if isinstance(link, StatusProblem) and link.reason == NO_SUCH_ENDPOINT and unfinished:
        return "its SlurmEndpoint is gone, and usually its red-box with it"
    return ""


def _unchanged(condition: StatusCondition) -> NewCondition:
    holds = condition.status is ConditionStatus.TRUE
    return NewCondition(ConditionType(condition.type), condition.reason, condition.message, holds=holds)
