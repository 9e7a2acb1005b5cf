"""Reconciles each SlurmJob with its job in Slurm and with its pods in Kubernetes.

Watches, the resync and red-box's feed only put the name of a SlurmJob into the queue. `reconcile` then reads
its current state from the caches and takes these steps:

    being deleted? ── yes ──> `Deletion`: cancel the jobs in Slurm, await their end, lift the finalizer
          │ no
          ▼
    1. finalizer   add ours before anything is created                    `_add_finalizer`
    2. attempt     the newest attempt and its row, or its cancel          `_attempt_state`, `cancelled`
    3. pods        create, replace or keep the pods of the attempt        `AttemptPods`
    4. status      build the status of both, write it, publish events     `_write_status`, `status_of`
    5. Slurm       hold, release or cancel, as the status announces now   `_act_in_slurm`
    6. cleanup     forget rows that the status has, delete after the TTL  `_forget_rows`, `_expire`

A step that acts outside of Kubernetes comes after the status that announces it, so that a restart finds it
again. Pure functions decide: `attempts`, `attempt_state`, `dependencies`, `status`, `companion_pods.plan`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

import structlog

from redbox_api.errors import Busy, Conflict, NoSuchJob, RedboxError
from redbox_api.models import FINAL_PHASES
from redbox_clusters.slurm_endpoint import is_visible
from redbox_kube.api.objects import ApiError, Object
from redbox_kube.runtime.clock import now
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_kube.runtime.waiting_details import WaitingDetails
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.conditions import condition_events
from redbox_operator.api.constants import FINALIZER
from redbox_operator.api.decode import read_job
from redbox_operator.api.slurmjob import SlurmJob, SlurmJobRef, path_of
from redbox_operator.api.slurmjob_status import SlurmJobStatus, is_detail
from redbox_operator.companion_pods.builder import CompanionProgram
from redbox_operator.companion_pods.lifecycle import CompanionLifecycle, CompanionState, as_final
from redbox_operator.companion_pods.placement import cluster_of
from redbox_operator.companion_pods.plan import CompanionPod
from redbox_operator.metrics import OperatorMetrics
from redbox_operator.object_cache import ObjectCache, trimmed
from redbox_operator.slurmcluster.job_feed import RedboxLink, RedboxUnavailable
from redbox_operator.slurmcluster.registry import RedboxLinks
from redbox_operator.slurmjob import attempts
from redbox_operator.slurmjob.attempt_pods import AttemptPods
from redbox_operator.slurmjob.attempt_state import (
    AttemptState,
    cancel_requested,
    expires_in,
    has_unsent_release,
    is_recorded,
    next_attempt_in,
    pending_action,
    status_inputs,
)
from redbox_operator.slurmjob.deletion import Deletion
from redbox_operator.slurmjob.requested_actions import RequestedActions, cancelled
from redbox_operator.slurmjob.status import status_of
from redbox_operator.slurmjob.superseded import cancel_older_attempts, forget_older_rows
from redbox_shared.backoff import Backoff

log = structlog.get_logger(__name__)
WORKERS = 32
SHORTEST_PAUSE_S = 1.0
BACKOFF = Backoff(SHORTEST_PAUSE_S, 60.0, jitter=0.0)
AWAY_PAUSE_S = 5.0
REFUSED_S = 3600.0  # then a refusal of Kubernetes is final


class Reconciler:
    """Owns the queue of SlurmJobs and the workers that reconcile them."""

    def __init__(
        self,
        writer: StatusWriter,
        cache: ObjectCache,
        links: RedboxLinks,
        program: CompanionProgram,
        metrics: OperatorMetrics,
        *,
        host_paths: Sequence[str] = (),
    ) -> None:
        self.cache = cache
        self.queue: WorkQueue[SlurmJobRef] = WorkQueue()
        self._writer = writer
        self._links = links
        self._metrics = metrics
        companions = CompanionLifecycle(writer, program, cache.companion_written)
        self._pods = AttemptPods(companions, cache, links, host_paths)
        self._deletion = Deletion(writer, self._cache_written)
        self._requested = RequestedActions(writer)
        self._unreleased: set[str] = set()  # uids
        self._failures: dict[SlurmJobRef, int] = {}
        self._refused_since: dict[SlurmJobRef, float] = {}
        self._details = WaitingDetails()
        self._warnings = GroupedWarnings("SlurmJobs not reconciled")
        self._clusters_listed = False

    async def run(self) -> None:
        """Reconcile queued SlurmJobs until cancelled."""
        await self.queue.run(self._handle, workers=WORKERS)

    # -- events that queue SlurmJobs

    def wake_uid(self, uid: str) -> None:
        """The job or a pod of the SlurmJob of this uid has changed."""
        if (ref := self.cache.ref_of(uid)) is not None:
            self.queue.add(ref)

    def wake_cluster(self, cluster: str) -> None:
        """Queue a SlurmCluster's unfinished SlurmJobs: it has changed, or its red-box answers again.

        Those that were submitted nowhere yet, too, if they may use it: users change SlurmEndpoints at will.
        """
        for job in list(self.cache.jobs.values()):
            may_use = not job.has_companion and is_visible(cluster, job.ref.namespace)
            if (job.cluster == cluster or may_use) and (job.being_deleted or not job.done):
                self.queue.add(job.ref)

    def clusters_listed(self) -> None:
        """All SlurmClusters are listed: only now a SlurmCluster that is not cached does not exist."""
        if not self._clusters_listed:
            self._clusters_listed = True
            for ref in list(self.cache.jobs):
                self.queue.add(ref)

    def job_updated(self, job: SlurmJob) -> None:
        """A watch or a list has shown a SlurmJob."""
        before = self.cache.jobs.get(job.ref)
        if self.cache.update_job(job):
            if before is not None and before.uid != job.uid:  # its deletion is shown later, or never
                self._forget(job.ref, before.uid)
            self.queue.add(job.ref)
            self._wake_dependents(job.ref)

    def job_deleted(self, ref: SlurmJobRef, uid: str) -> None:
        """A SlurmJob is gone. Another one may have its name already, and keeps its timer then."""
        if not self.cache.remove_job(ref, uid):
            return
        self._forget(ref, uid)
        self.queue.forget(ref)
        self._wake_dependents(ref)

    def _forget(self, ref: SlurmJobRef, uid: str) -> None:
        """What was noted of a SlurmJob that is gone."""
        self._requested.forget(uid)
        self._unreleased.discard(uid)
        self._failures.pop(ref, None)
        self._refused_since.pop(ref, None)
        self._details.forget(ref)
        self._warnings.recovered(ref.full_name)

    def companion_updated(self, pod: CompanionPod) -> None:
        """A watch or a list has shown a pod with a companion's label; its uid decides whether it is one."""
        if self.cache.update_companion(pod):
            self._wake_job_of(pod)

    def companion_deleted(self, pod: CompanionPod) -> None:
        """A pod with the label of a companion is gone."""
        self.cache.remove_companion(pod.namespace, pod.name, pod.uid)
        self._wake_job_of(pod)

    def _wake_job_of(self, pod: CompanionPod) -> None:
        """Anybody may give a pod the label of a SlurmJob of another namespace."""
        ref = self.cache.ref_of(pod.job_uid)
        if ref is not None and ref.namespace == pod.namespace:
            self.queue.add(ref)

    def _wake_dependents(self, ref: SlurmJobRef) -> None:
        for dependent in self.cache.dependents_of(ref):
            self.queue.add(dependent)

    # -- the queue's work: one reconciliation, and when the next one is due

    async def _handle(self, ref: SlurmJobRef) -> None:
        try:
            requeue_after_s = await self.reconcile(ref)
        except RedboxUnavailable as away:
            # The link's return queues all its SlurmJobs: ten thousand timers would be a busy loop.
            self._metrics.errors.labels("redbox").inc()
            pause_s = away.after_s + random.uniform(1.0, AWAY_PAUSE_S)  # noqa: S311 (no secret)
            requeue_after_s = None if away.until_return else pause_s
        except (ApiError, RedboxError, OSError, TimeoutError) as error:
            requeue_after_s = self._next_pause(ref)
            self._metrics.errors.labels("redbox" if isinstance(error, RedboxError) else "kubernetes").inc()
            self._warnings.failed(ref.full_name, error)
        except Exception:
            # A defect that one SlurmJob triggers must not stop the others.
            requeue_after_s = self._next_pause(ref)
            self._metrics.errors.labels("defect").inc()
            log.exception("defect", slurmjob=ref.full_name, again_in_s=requeue_after_s)
        else:
            self._warnings.recovered(ref.full_name)
        if requeue_after_s is not None:
            self.queue.add_later(ref, requeue_after_s)

    def _next_pause(self, ref: SlurmJobRef) -> float:
        failures = self._failures[ref] = self._failures.get(ref, 0) + 1
        return BACKOFF.pause_s(failures)

    async def reconcile(self, ref: SlurmJobRef) -> float | None:
        """All steps for one SlurmJob; returns seconds after which it is due without any change."""
        job = self.cache.get(ref)
        if job is None or not self._clusters_listed:
            self._details.forget(ref)
            return None
        name = cluster_of(job, self._links.names())
        link = self._links.get(name)
        if job.being_deleted:
            return await self._deletion.advance(job, link or self._links.problem_of(name))
        if FINALIZER not in job.finalizers:
            job = job if job.is_whole else await self._whole(job)
            job = job and await self._add_finalizer(job)
            if job is None:
                return None  # its version was not the newest: the watch will show that
        if link is not None and not link.synced and job.status.companion and not job.status.finished:
            return None  # queued again when red-box has listed its jobs
        whole = job if job.is_whole else await self._whole(job)
        return None if whole is None else await self._reconcile_whole(whole, link, name)

    async def _whole(self, job: SlurmJob) -> SlurmJob | None:
        """A large SlurmJob as the API server has it now, of which the cache keeps a part.

        None where it is gone, which the watch will show, or being deleted, which queues it again.
        """
        raw = await self._writer.objects.get(path_of(job.ref))
        if raw is None or raw["metadata"]["uid"] != job.uid:
            return None
        newest = read_job(job.resource, raw)
        self.job_updated(newest)
        return None if newest.being_deleted else trimmed(newest)

    async def _reconcile_whole(
        self, job: SlurmJob, link: RedboxLink | None, name: str | None
    ) -> float | None:
        ref = job.ref
        state = await cancelled(await self._attempt_state(job, link), self._links.problem_of(name).message)
        companion = await self._pods.reconcile(state)
        if companion is None:
            return None
        companion = self._unless_given_up(ref, companion)
        status, details_due_in = await self._write_status(state, companion)
        await self._act_in_slurm(state, status)
        self._forget_rows(state, status)
        pauses = (
            details_due_in,
            companion.requeue_after_s,
            self._growing_pause(ref, companion),
            next_attempt_in(state, status, now(), SHORTEST_PAUSE_S),
            await self._expire(state, status),
        )
        return min((pause for pause in pauses if pause is not None), default=None)

    # -- 1. finalizer

    async def _add_finalizer(self, job: SlurmJob) -> SlurmJob | None:
        version = str(job.metadata["resourceVersion"])
        written = await self._writer.finalizers(
            path_of(job.ref), [*job.finalizers, FINALIZER], version=version
        )
        return self._cache_written(job, written) if written else None

    def _cache_written(self, job: SlurmJob, written: Object) -> SlurmJob:
        """Cache the object that a write of ours returned, which holds concurrent changes of others as well.

        The watch shows those changes in an older version, which the cache ignores: so they are queued here.
        """
        newest = trimmed(read_job(job.resource, written))
        self.cache.job_written(newest)
        current = self.cache.get(job.ref) or job
        if current.user_input != job.user_input:
            self.queue.add(job.ref)
        return current if current.is_whole else newest

    # -- 2. attempt

    async def _attempt_state(self, job: SlurmJob, link: RedboxLink | None) -> AttemptState:
        """The newest attempt, or the one that is due now, with its row at red-box."""
        unreleased = job.uid in self._unreleased
        state = AttemptState(job, link, attempts.current(job.status), None, unreleased=unreleased)
        if link is None:
            return state
        row = link.row(state.row_key)
        status = job.status
        between_attempts = status.reason in {attempts.RETRYING, attempts.SUSPENDED}
        is_over = status.finished or between_attempts
        if row is None and status.companion and not is_over:
            row = await link.find(state.row_key)  # its last change may have been missed
        if is_over and row is not None and row.phase in FINAL_PHASES and is_recorded(status, row):
            row = None
        is_due = attempts.next_begins_in(job.spec, status, now()) == 0.0
        if row is None and is_due and not cancel_requested(job):
            return replace(state, attempt=attempts.following(status))
        return replace(state, row=row, release_refused=self._requested.release_refused(job, row))

    # -- 3. pods

    def _unless_given_up(self, ref: SlurmJobRef, companion: CompanionState) -> CompanionState:
        """Others wake it as often as they like, and each time it is refused again: so time counts."""
        if not companion.refused or companion.problem is None:
            self._refused_since.pop(ref, None)
            return companion
        at = monotonic()  # a host that slept has not tried meanwhile
        if at - self._refused_since.setdefault(ref, at) < REFUSED_S:
            return companion
        return replace(companion, problem=as_final(companion.problem), refused=False)

    def _growing_pause(self, ref: SlurmJobRef, companion: CompanionState) -> float | None:
        if companion.refused or companion.waits:
            return self._next_pause(ref)
        self._failures.pop(ref, None)
        return None

    # -- 4. status

    async def _write_status(
        self, state: AttemptState, companion: CompanionState
    ) -> tuple[SlurmJobStatus, float | None]:
        """Returns the status that is written, and when details are due that wait for the next change."""
        before, after = state.before, status_of(status_inputs(state, companion, self.cache.companions, now()))
        pause_s = self._details.pause_s(state.job.ref, now().timestamp(), is_detail=is_detail(before, after))
        if after == before or pause_s:
            if state.link is not None:
                state.link.lag.end(state.row_key)  # nothing is written: the next change has its own lag
            return before, pause_s or None
        path = path_of(state.job.ref)
        written = await self._writer.status(path, state.job.uid, after.written())
        if written is None:
            return after, None
        self._cache_written(state.job, written)
        self._wake_dependents(state.job.ref)
        if state.link is not None:
            created = state.job.metadata.get("creationTimestamp", "")
            self._metrics.observe_status(state.link.lag.end(state.row_key), before, after, created)
        events = condition_events(before.conditions, after.conditions)
        await self._writer.publish(path, state.job.uid, events)
        return after, None

    # -- 5. Slurm

    async def _act_in_slurm(self, state: AttemptState, status: SlurmJobStatus) -> None:
        """Hold, release or cancel the job as the written status announces, and cancel older attempts."""
        row, link = state.row, state.link
        try:
            await cancel_older_attempts(state, self._writer)
            if row is None or link is None or row.phase in FINAL_PHASES or state.cancel:
                return
            if attempts.is_being_suspended(status):
                await link.cancel(state.row_key, all_attempts=False)
            elif action := pending_action(row, status, unreleased=self._notes_release(state, status)):
                if await self._requested.hold_or_release(state, link, row, action):
                    self._unreleased.discard(state.job.uid)
                else:
                    self.queue.add(state.job.ref)  # its status announces the release
            else:
                await self._requested.act_on_run(state, link, row)
        except (NoSuchJob, Conflict, Busy) as refusal:
            log.info("action refused by red-box", slurmjob=state.job.ref.full_name, error=str(refusal))
            self.queue.add_later(state.job.ref, AWAY_PAUSE_S)

    def _notes_release(self, state: AttemptState, status: SlurmJobStatus) -> bool:
        """Whether its release is to be sent whatever the row says; kept until red-box has accepted it."""
        is_unsent = has_unsent_release(state, status)
        (self._unreleased.add if is_unsent else self._unreleased.discard)(state.job.uid)
        return is_unsent

    # -- 6. cleanup

    def _forget_rows(self, state: AttemptState, status: SlurmJobStatus) -> None:
        """Forget rows of ended attempts that the status has recorded: there may be thousands of them."""
        if state.link is None:
            return
        if status.finished and (status.companion is None or status.companion.done):
            state.link.forget(state.row_key)
        forget_older_rows(state, state.link)

    async def _expire(self, state: AttemptState, status: SlurmJobStatus) -> float | None:
        """Delete a SlurmJob that has expired."""
        left = expires_in(state.job, status, now())
        if left == 0.0:
            await self._writer.delete(path_of(state.job.ref), state.job.uid)
        return left or None
