"""Records as jobs of the API. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redbox.core.observations import ObservedStatus, TaskObservation
from redbox.core.workload_manager import JobStates
from redbox.jobs.record.launches import launch_failed
from redbox.jobs.record.messages import ABSENT
from redbox.jobs.record.packed_records import RecordSummary
from redbox.jobs.record.pods import failed_container, final_report, stored_report
from redbox.jobs.record.record import UNCLAIMED, JobRecord, Stage
from redbox.jobs.record.state_machine import StateMachine
from redbox_api.hostlists import expand
from redbox_api.models import ArrayTask, Job, LogPath, OwnerRef, Phase
from redbox_shared.wire import LAUNCH_FAILED

MOST_LISTED = 40_000
"""Tasks in one answer, of some 100 bytes each: a companion has 64 MiB for them and what it keeps of each."""


def visible(record: RecordSummary) -> bool:
    """An unconfirmed intent is not shown: a companion that asks for it gets 404, and sends its PUT again.

    A job whose owner's names were lost with the journal is shown once that owner sends a request.
    """
    return record.stage is not Stage.UNCONFIRMED and record.key.owner.cluster != UNCLAIMED


def job_view(
    record: JobRecord,
    machine: StateMachine,
    *,
    epoch: str,
    slurm_cluster: str | None,
    stale_since: datetime | None,
    tasks: Sequence[ArrayTask] | None = None,
    body_changed: bool = False,
) -> Job:
    """The record as a job: unknown values are None, and `stale_since` marks a state that may be old."""
    status = record.status
    owner = record.key.owner
    absent = not record.final and record.absent_since is not None
    return Job(
        key=record.key.key,
        attempt=record.key.attempt,
        owner=OwnerRef(cluster=owner.cluster, namespace=owner.namespace, account=owner.account),
        user=record.user.name,
        phase=record.phase,
        state=status.state or None,
        reason=_reason(record, absent=absent),
        message=ABSENT.format(record.job_id) if absent else record.message,
        job_id=record.job_id,
        cluster=slurm_cluster,
        name=status.name or record.job_name or None,
        partition=status.partition or None,
        account=status.account or None,
        qos=status.qos or None,
        nodes=expand(status.nodes),
        exit_code=_exit_code(record),
        signal=_signal(record),
        run=record.run,
        submitted_at=status.submitted_at or record.bound_at,
        started_at=status.started_at,
        ended_at=status.ended_at if record.final else None,
        working_directory=status.working_directory or record.working_directory or None,
        logs=LogPath(stdout=status.stdout, stderr=status.stderr),
        array=machine.count_tasks(status) if status.array_size else None,
        tasks=None if tasks is None else list(tasks),
        pod=stored_report(record.pod_report),
        is_pod=record.is_pod,
        pod_inputs=record.pod_inputs or None,
        no_sign_of_start=record.no_sign_of_start,
        cancel_requested=record.cancel_requested,
        env_changed=body_changed,
        spec_digest=record.spec_digest,
        warnings=list(record.warnings),
        stale_since=None if record.final else (record.absent_since or stale_since),
        revision=f"{epoch}.{record.revision}",
    )


def _reason(record: JobRecord, *, absent: bool) -> str | None:
    """The queue's last reason is old of a job that it no longer shows."""
    if record.final and launch_failed(record):
        return LAUNCH_FAILED
    if record.lost_reason or absent or record.phase is Phase.LOST:
        return record.lost_reason or None
    return record.status.reason or None


def _exit_code(record: JobRecord) -> int | None:
    if record.phase is Phase.SUCCEEDED:
        return 0
    if (report := final_report(record)) is not None and record.final:
        failed = failed_container(report)
        return failed[1].exit_code if failed else None
    return record.status.exit_code if record.phase in (Phase.FAILED, Phase.CANCELLED) else None


def _signal(record: JobRecord) -> int | None:
    if not record.final:
        return None
    if (report := final_report(record)) is not None:
        failed = failed_container(report)
        return failed[1].signal if failed else None
    return record.status.signal


def are_listed(status: ObservedStatus) -> bool:
    """Not of a job other than an array, and not too many for readers who hold an answer in memory."""
    return bool(status.array_size) and len(status.tasks) <= MOST_LISTED


def task_views(tasks: Sequence[TaskObservation], states: JobStates) -> list[ArrayTask]:
    return [
        ArrayTask(
            index=task.index,
            job_id=task.job_id,
            phase=states.phase_of(task.state) or Phase.PENDING,
            state=task.state,
            exit_code=task.exit_code,
            signal=task.signal,
        )
        for task in tasks
    ]
