"""Jobs, as callers ask for them: put, get, list, delete, act, watch.

Each action is authorized (`record_access`) and written to the audit log. `submit` turns a PUT into exactly
one submission, `poll` keeps the states up to date. What runs in the background ends with the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Self

from redbox.core.clock import Clock, SystemClock
from redbox.core.domain import Caller, JobKey, Owner, Role
from redbox.core.turns import in_thread_of
from redbox.core.workload_manager import JobAction, WorkloadManager, WorkloadManagerError
from redbox.jobs.background_tasks import BackgroundTasks
from redbox.jobs.context import Context
from redbox.jobs.errors import (
    JobConflict,
    JobNotFound,
    JobsBusy,
    JobsError,
    RateLimited,
    RefusedBySlurm,
)
from redbox.jobs.job_actions import JobActions, handle_for, may_act_for_others, with_cancelled_task
from redbox.jobs.owner_limit import OwnerLimit
from redbox.jobs.pod_updates import PodUpdates
from redbox.jobs.poll.cancelled_jobs import CancelledJobs
from redbox.jobs.poll.credential_cleanup import CredentialCleanup
from redbox.jobs.poll.dependents import Dependents
from redbox.jobs.poll.missing_jobs import MissingJobs
from redbox.jobs.poll.pod_reports import PodReports
from redbox.jobs.poll.poller import Poller
from redbox.jobs.query.array_tasks import ArrayTasks
from redbox.jobs.query.cluster_info import ClusterInfo
from redbox.jobs.query.partitions import PartitionQueries
from redbox.jobs.query.watch import JobView, Watcher
from redbox.jobs.record.api_view import job_view, visible
from redbox.jobs.record.listing import Filters, PageRequest, page_of
from redbox.jobs.record.marks import Marks
from redbox.jobs.record.packed_records import RecordSummary
from redbox.jobs.record.record import ALL_ATTEMPTS, JobRecord, Tombstone, lineage, shared
from redbox.jobs.record.state_machine import StateMachine, is_new_cancel, to_cancel
from redbox.jobs.record_access import RecordAccess, require_reader, submitter_of
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.ownership import OwnershipClaims, addressed_owner, may_see
from redbox.jobs.store.record_store import Change, RecordStore
from redbox.jobs.store.retention import Retention
from redbox.jobs.submit.coordinator import SubmitCoordinator
from redbox.jobs.submit.submit_request import (
    PutRequest,
    put_request,
    refuse_beyond_limits,
    refuse_new_pod,
)
from redbox.jobs.submit.takeover_fence import fence_from
from redbox.jobs.submit.unconfirmed import UnconfirmedSubmits
from redbox.observability.job_audit import Audit, audit_entry, no_audit
from redbox_api.models import (
    ArrayTask,
    Check,
    Job,
    JobList,
    JobRequest,
    WatchEvent,
)

ALL_FILTERS_OFF = Filters()
FIRST_PAGE = PageRequest()


class JobService:
    """The jobs of one Slurm cluster."""

    def __init__(
        self,
        journal: Journal,
        workload: WorkloadManager,
        marks: Marks,
        *,
        clock: Clock | None = None,
        settings: JobsSettings | None = None,
        audit: Audit = no_audit,
    ) -> None:
        clock = clock or SystemClock()
        self._settings = settings = settings or JobsSettings()
        self._workload, self._marks = workload, marks
        self._machine = StateMachine(workload.states, settings)
        self._store = store = RecordStore(journal, deletions=settings.deletions_remembered)
        self._claims = OwnershipClaims(store, marks)
        self._access = RecordAccess(store, self._claims)
        self._submit_limit = OwnerLimit("submits", settings.submit_rate, "jobs.submits_per_second")
        self._group = group = asyncio.TaskGroup()
        self._running: asyncio.Task[None] | None = None
        background = BackgroundTasks(group)
        self._context = context = Context(store, workload, clock, settings, self._machine, background, audit)
        self.update_pod = PodUpdates(context, self._access, self._view).update
        self._actions = JobActions(context)
        self._submits = SubmitCoordinator(context, group, fence_from(store.facts, settings), self._actions)
        unconfirmed = UnconfirmedSubmits(context, self._actions, self._submits.is_submitting)
        cleanup, dependents = CredentialCleanup(context), Dependents(context, self._actions)
        reports, cancelled = PodReports(context, group), CancelledJobs(context, group)
        self.expect_report = reports.expect
        followers = (self._actions, unconfirmed, dependents, reports, cancelled, cleanup)
        self._poller = Poller(context, MissingJobs(context), followers)
        self.poll_anew = self._poller.poll_anew
        of_cluster = ClusterInfo(context, self._poller.take_turn)
        self.cluster, self.whoami = of_cluster.cluster, of_cluster.whoami
        self._partitions = PartitionQueries(context, self._poller.take_turn)
        self.partitions, self.watch_partitions = self._partitions.list, self._partitions.watch
        self._array_tasks = ArrayTasks(workload.states)
        self._retention = Retention(store, clock, settings)

    # ------------------------------------------------------------------------------------------ running

    async def __aenter__(self) -> Self:
        ready = asyncio.Event()
        self._running = asyncio.create_task(self._run(ready))
        starting = asyncio.create_task(ready.wait())
        await asyncio.wait({self._running, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.is_set():
            starting.cancel()
            self._running.result()  # raises its fault
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _run(self, ready: asyncio.Event) -> None:
        async with self._group as group:
            group.create_task(self._poller.run())
            group.create_task(self._partitions.run())
            group.create_task(self._retention.run())
            ready.set()

    @property
    def alive(self) -> bool:
        """Whether the background work goes on; False is a fault that only a restart repairs."""
        return self._running is not None and not self._running.done()

    @property
    def fault(self) -> BaseException | None:
        """The exception that ended the background work, once it has ended by itself."""
        running = self._running
        return running.exception() if running and running.done() and not running.cancelled() else None

    async def ended(self) -> BaseException | None:
        """Wait until the background work has ended, and return its fault."""
        if self._running is not None:
            await asyncio.wait({self._running})
        return self.fault

    @property
    def stale_since(self) -> datetime | None:
        """Since when no poll has shown the whole queue."""
        return self._poller.stale_since

    def current(self, key: JobKey) -> JobRecord | None:
        """A record that was located before, as it is now."""
        return self._store.index.get(key)

    async def next_change(self) -> None:
        """Wait until any record changes."""
        await self._store.index.moved.wait()

    def __iter__(self) -> Iterator[RecordSummary]:  # for metrics: how many are where
        return iter(self._store.index)

    # ------------------------------------------------------------------------------------------ submitting

    async def put(
        self, caller: Caller, key: str, attempt: int, request: JobRequest, *, is_large: bool = False
    ) -> tuple[Job, bool]:
        """The caller's job of this key, submitted if it does not exist; whether it was submitted."""
        put = await self._put_request(caller, JobKey(caller.owner, key, attempt), request, is_large=is_large)
        await self._claims.claim(caller.owner, key, by_name_only=False)
        try:
            result = await self._submits.put(put)
        except JobsError as error:
            outcome, detail, name = error.outcome, error.detail, put.submission.job_name
            self._context.audit(audit_entry(caller, "submit", put.key, outcome, detail=detail, name=name))
            raise
        self._context.audit_act(caller, "submit", result.record, "done" if result.created else "same")
        return self._view(result.record, body_changed=result.body_changed), result.created

    async def check(self, caller: Caller, request: JobRequest, *, is_large: bool = False) -> Check:
        """Whether Slurm would accept it, and when it would start."""
        put = await self._put_request(caller, JobKey(caller.owner, "check"), request, is_large=is_large)
        refuse_beyond_limits(put.submission)
        try:
            return await self._context.call(self._workload.check(put.user, put.submission))
        except (WorkloadManagerError, TimeoutError) as fault:
            raise JobsBusy(f"Slurm does not answer: {fault}.", retry_after=5) from fault

    async def _put_request(
        self, caller: Caller, key: JobKey, request: JobRequest, *, is_large: bool
    ) -> PutRequest:
        """The request of a caller who may submit, and not too often; a large one is digested in a thread."""
        user = submitter_of(caller)
        self._submit_limit.charge(caller.owner, self._context.clock.monotonic())
        refuse_new_pod(request, self._store.index.get(key), self._settings)
        make = partial(put_request, caller, user, key, request, marks=self._marks, settings=self._settings)
        return await in_thread_of(caller.name, make) if is_large else make()

    # ------------------------------------------------------------------------------------------ reading

    async def get(
        self,
        caller: Caller,
        key: str,
        attempt: int = 1,
        owner: Owner | None = None,
        *,
        with_tasks: bool = True,
    ) -> Job:
        """One job, of an array with its tasks."""
        read = partial(self._access.record, caller, key, attempt, owner)
        if not with_tasks:
            return self._view(await read())
        return self._view(*await self._array_tasks.listed(caller.name, read))

    async def locate(self, caller: Caller, key: str, attempt: int = 1) -> JobRecord:
        """For logs and files: only the owner's, never an operator's."""
        return await self._access.own_record(caller, key, attempt)

    async def list(
        self, caller: Caller, filters: Filters = ALL_FILTERS_OFF, page: PageRequest = FIRST_PAGE
    ) -> JobList:
        """The caller's jobs, or an operator's cluster's."""
        require_reader(caller)
        await self._claims.claim_all(caller.owner)
        index = self._store.index

        def wanted(record: RecordSummary) -> bool:
            return visible(record) and may_see(caller, record) and filters.pass_(record)

        size = min(page.size or self._settings.page_size, self._settings.page_size)
        records = partial(index.listed, None if caller.may(Role.OPERATOR) else caller.owner)
        return page_of(records, page, index.revision, size, self._view, wanted=wanted)

    def watch(
        self, caller: Caller, since: str | None = None, filters: Filters = ALL_FILTERS_OFF
    ) -> AsyncIterator[WatchEvent]:
        """Changes of the jobs that the caller may see; raises Gone at once if `since` is too old."""
        require_reader(caller)
        index = self._store.index
        number = index.number_of(since)
        changes = index.since if caller.may(Role.OPERATOR) else partial(index.since_of, caller.owner)
        view = JobView(
            wanted=lambda record: (
                may_see(caller, record) and filters.namespace in (None, record.key.owner.namespace)
            ),
            shown=lambda record: visible(record) and filters.pass_(record),
            view=self._view,
            remark=self._staleness,
        )
        return Watcher(index, changes, view, self._context.clock, self._settings).events(number)

    def _staleness(self) -> str | None:
        since = self._poller.stale_since
        return f"stale since {since.isoformat()}" if since else None

    def _view(
        self, record: JobRecord, tasks: Sequence[ArrayTask] | None = None, *, body_changed: bool = False
    ) -> Job:
        return job_view(
            record,
            self._machine,
            epoch=self._store.index.epoch,
            slurm_cluster=self._marks.slurm_cluster,
            stale_since=self._poller.stale_for(record.user.uid),
            tasks=tasks,
            body_changed=body_changed,
        )

    # -------------------------------------------------------------------------------- deleting and acting

    async def delete(
        self,
        caller: Caller,
        key: str,
        attempt: int | None = 1,
        owner: Owner | None = None,
        *,
        force: bool = False,
    ) -> tuple[Job, ...]:
        """Cancel an attempt, or all of them (None) and those still to come; `force`: a pod without its grace.

        If there is no such job, a tombstone remains and JobNotFound is raised: a later submit is refused.
        """
        of = addressed_owner(caller, owner)
        await self._claims.claim(of, key, by_name_only=of != caller.owner)
        found: Sequence[JobKey] = ()
        wanted: Sequence[JobRecord] = ()
        added = Change()

        def decide() -> Change:
            nonlocal found, wanted, added
            line = self._access.line(caller, of, key)
            records = [record for record in line if attempt in (None, record.key.attempt)]
            found = [record.key for record in records]
            wanted = [record for record in records if is_new_cancel(record, force=force)]
            save = tuple(to_cancel(record, self._context.clock.now(), force=force) for record in wanted)
            added = self._burial(caller, of, key, attempt) if attempt is None or not records else Change()
            return replace(added, save=save)

        await self._store.change([lineage(of, key)], decide)
        records = [record for job_key in found if (record := self._store.index.get(job_key)) is not None]
        cancelled = {record.key for record in wanted if not record.final}
        for record in records:
            self._context.audit_act(caller, "cancel", record, "done" if record.key in cancelled else "same")
            self._actions.cancel_if_due(record)
        if not wanted and (added or not records):
            job_key = JobKey(of, key, attempt or ALL_ATTEMPTS)
            self._context.audit(audit_entry(caller, "cancel", job_key, "tombstone" if added else "same"))
        self._context.request_poll()
        if not any(visible(record) for record in records):
            raise JobNotFound(
                "There is no such job, or it is not yours. Should it be submitted later, it is refused."
            )
        return tuple(self._view(record) for record in records)

    def _burial(self, caller: Caller, owner: Owner, key: str, attempt: int | None) -> Change:
        """An operator, who names the owner, is never refused: else its users' deleted jobs would stay."""
        stone = Tombstone(shared(owner), key, attempt or ALL_ATTEMPTS, self._context.clock.now())
        if self._store.tombstones.covering(JobKey(owner, key, stone.attempt)):
            return Change()
        surplus = self._store.tombstones.surplus(self._settings.tombstones_per_owner, stone)
        if surplus and owner == caller.owner:
            raise RateLimited(
                "Too many keys of yours were deleted before they were submitted.", retry_after=600
            )
        return Change(tombstones=(stone,), lift=surplus)

    async def act(
        self,
        caller: Caller,
        key: str,
        attempt: int,
        act: JobAction,
        *,
        signal: str | None = None,
        run: int | None = None,
        task: int | None = None,
        owner: Owner | None = None,
    ) -> Job:
        """Hold, release, requeue or signal an own job, or by its owner one of an operator's cluster.

        Of an array one task may be cancelled.

        Slurm's refusal is RefusedBySlurm.
        """
        if owner is None or not may_act_for_others(caller, act):
            submitter_of(caller)
            owner = None
        record = await self._access.record(caller, key, attempt, owner)
        handle = handle_for(record, act, task)
        try:
            outcome = await self._actions.act(handle, act, signal=signal, run=run)
        except (WorkloadManagerError, TimeoutError) as fault:
            self._context.audit_act(caller, act, record, "unknown")
            raise JobsBusy(f"Slurm does not answer: {fault}.", retry_after=5) from fault
        self._context.request_poll()
        self._context.audit_act(caller, act, record, "done" if outcome.done else "refused", outcome.detail)
        if outcome.gone:
            raise JobConflict(
                f"Slurm no longer has job {handle.job_id} as it was submitted; nothing was touched."
            )
        if not outcome.done:
            raise RefusedBySlurm(outcome.detail)
        if task is not None:
            await self._store.change_one(record.key, lambda current: with_cancelled_task(current, task))
        return self._view(self._store.index.get(record.key) or record)
