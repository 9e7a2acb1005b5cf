"""Records as callers see them. Pure."""

from __future__ import annotations

from datetime import datetime

from redbox.core.workload_manager import TaskObservation
from redbox.jobs.record.packed_records import Outline
from redbox.jobs.record.record import UNCLAIMED, Record, Seen, Stage
from redbox.jobs.record.state_machine import count_tasks, phase_of
from redbox_api.hostlists import expand
from redbox_api.models import ArrayCounts, ArrayTask, Job, LogPath, OwnerRef, Phase


def visible(record: Outline) -> bool:
    """A doubtful intent is nothing yet: a companion that asks for it hears 404, and sends its PUT again.

    A job whose owner's names were lost with the journal is shown when that owner comes.
    """
    return record.stage is not Stage.DOUBTFUL and record.key.owner.cluster != UNCLAIMED


def answer(
    record: Record,
    *,
    epoch: str,
    slurm_cluster: str | None,
    stale_since: datetime | None,
    with_tasks: bool = False,
    body_changed: bool = False,
) -> Job:
    """The record as a job; what is not known is None, and what may be old says since when."""
    seen = record.seen
    owner = record.key.owner
    return Job(
        key=record.key.key,
        attempt=record.key.attempt,
        owner=OwnerRef(cluster=owner.cluster, namespace=owner.namespace, account=owner.account),
        user=record.user.name,
        phase=record.phase,
        state=seen.state or None,
        reason=seen.reason or None,
        message=record.message,
        job_id=record.job_id,
        cluster=slurm_cluster,
        name=seen.name or record.job_name or None,
        partition=seen.partition or None,
        account=seen.account or None,
        qos=seen.qos or None,
        nodes=expand(seen.nodes),
        exit_code=_exit_code(record),
        signal=seen.signal if record.final else None,
        run=record.run,
        submitted_at=seen.submitted_at or record.bound_at,
        started_at=seen.started_at,
        ended_at=seen.ended_at if record.final else None,
        working_directory=seen.working_directory or record.working_directory or None,
        logs=LogPath(stdout=seen.stdout, stderr=seen.stderr),
        array=_counts(seen),
        tasks=[_task(task) for task in seen.tasks] if with_tasks and seen.array_size else None,
        cancel_requested=record.cancel_requested,
        env_changed=body_changed,
        spec_digest=record.spec_digest,
        warnings=list(record.warnings),
        stale_since=None if record.final else (record.absent_since or stale_since),
        revision=f"{epoch}.{record.revision}",
    )


def _exit_code(record: Record) -> int | None:
    if record.phase is Phase.SUCCEEDED:
        return 0
    return record.seen.exit_code if record.phase in (Phase.FAILED, Phase.CANCELLED) else None


def _counts(seen: Seen) -> ArrayCounts | None:
    if not seen.array_size:
        return None
    counts = count_tasks(seen)
    return ArrayCounts(
        total=counts.total,
        pending=counts.pending,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
        cancelled=counts.cancelled,
    )


def _task(task: TaskObservation) -> ArrayTask:
    return ArrayTask(
        index=task.index,
        job_id=task.job_id,
        phase=phase_of(task.state) or Phase.PENDING,
        state=task.state,
        exit_code=task.exit_code,
        signal=task.signal,
    )
