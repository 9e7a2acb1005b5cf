"""What changes of a pod while its job exists: files of its volumes, and its deadline.

An update is written into the pod's private folder, then its runner gets a signal, and at last the record has
the update's inputs. Whatever breaks in between, the sender still sees the inputs of before, and sends it
again: each step may be repeated. A job that waits needs no signal, since its runner reads what is there when
it starts. The pod's report is read again until the runner has applied the update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from redbox.core.domain import Caller
from redbox.core.workload_manager import ActionResult, JobAction, JobHandle, WorkloadManagerError
from redbox.jobs.context import Context, JobsComponent
from redbox.jobs.errors import JobConflict, JobsBusy, RefusedBySlurm
from redbox.jobs.record.record import JobRecord
from redbox.jobs.record_access import RecordAccess
from redbox_api.models import Job
from redbox_api.pod_parts import PodUpdate


class PodUpdates(JobsComponent):
    """Of the caller's own pods."""

    def __init__(self, context: Context, access: RecordAccess, view: Callable[[JobRecord], Job]) -> None:
        super().__init__(context)
        self._access = access
        self._view = view

    async def update(self, caller: Caller, key: str, attempt: int, update: PodUpdate) -> Job:
        record = await self._access.own_record(caller, key, attempt)
        try:
            outcome = await self._send(record, _handle_for(record), update)
        except (WorkloadManagerError, TimeoutError) as fault:
            self._context.audit_act(caller, JobAction.UPDATE, record, "unknown")
            raise JobsBusy(f"The pod is not updated yet: {fault}.", retry_after=5) from fault
        verdict = "done" if outcome.done else "refused"
        self._context.audit_act(caller, JobAction.UPDATE, record, verdict, outcome.detail)
        if outcome.gone:
            raise JobConflict(f"The pod's job has ended: {outcome.detail}")
        if not outcome.done:
            raise RefusedBySlurm(outcome.detail)
        await self._store.change_one(record.key, lambda current: _updated(current, update))
        self._context.request_poll()  # which has its report followed
        return self._view(self._store.index.get(record.key) or record)

    async def _send(self, record: JobRecord, handle: JobHandle, update: PodUpdate) -> ActionResult:
        directory = record.status.working_directory or record.working_directory
        try:
            outcome = await self._context.call(
                self._workload.update_pod(record.user, record.mark, directory, update)
            )
        finally:  # one that is late may be written all the same
            await self._store.change_one(record.key, _to_be_tidied)
        if not outcome.done:
            return outcome
        outcome = await self._context.call(self._workload.act(handle, JobAction.UPDATE))
        if not outcome.done and not outcome.gone:
            raise WorkloadManagerError(f"Slurm did not signal its runner: {outcome.detail}")
        return outcome


def _handle_for(record: JobRecord) -> JobHandle:
    if not record.pod_inputs:
        raise JobConflict("It is no pod, or one that was submitted without inputs: it cannot be updated.")
    if record.final or record.ending_since is not None:
        raise JobConflict("The pod's job has ended.")
    if (handle := record.handle) is None:
        raise JobsBusy("The pod's job is still being submitted.", retry_after=2)
    return handle


def _to_be_tidied(record: JobRecord) -> JobRecord:
    """One that ended meanwhile may have lost its private folder already: the update has made it again."""
    return replace(record, credentials=True) if record.final else record


def _updated(record: JobRecord, update: PodUpdate) -> JobRecord:
    return replace(record, pod_inputs=update.inputs, report_settled=False)
