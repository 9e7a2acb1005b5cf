"""Keeps every pod on a virtual node in step with its job: submits it once, follows it, removes deleted pods.

Watches are hints: any change enqueues the pod's place, and a reconciliation decides from the full state. A
pod is never reconciled twice at once, and none waits for another's red-box. State that a restart would lose
is kept nowhere: the pod's own condition and red-box show whether its job was submitted.

A reconciliation, in this order:

    being deleted          -> remove the pod: a companion's job belongs to the SlurmJob, a running pod's job
                              is cancelled first, and its last status is written
    has ended              -> nothing
    no SlurmCluster        -> nothing, until one appears
    was rejected           -> write that status again
    has no job             -> a status that says so
    red-box unreachable    -> wait for it; a pod without a job says so
    job not confirmed      -> verify the pod, attach or submit
    job known              -> write its status
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Protocol

import structlog

from redbox_api.feed import RowKey
from redbox_api.models import FINAL_PHASES, Job, OwnerRef, Phase
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import ApiError, ApiRefused, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.pods import pod_status
from redbox_resourced.pods.ending.orphans import OrphanSweep
from redbox_resourced.pods.exit_status import JobRefusal
from redbox_resourced.pods.informer import PodInformer
from redbox_resourced.pods.job_feed import PodJobFeed, row_key_of
from redbox_resourced.pods.pod_view import ENDED, BoundPod, BoundPodKind, digest_of
from redbox_resourced.pods.reported import run_status
from redbox_resourced.pods.reported.pod_events import PodEvents
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.pods.submission_errors import SubmissionPending, SubmissionRejected
from redbox_shared.backoff import Backoff
from redbox_shared.job_end import LOST_AFTER_S

log = structlog.get_logger(__name__)
AT_ONCE = 32
BACKOFF = Backoff(0.05, 60.0)
RUNNERS_END_S = 20.0
"""Beyond the grace period of a deletion: red-box allows the runner 15 s for its last report."""
SILENT_TRIES = 5  # about a second: the operator names a companion a moment after it created it


RedboxCaller = tuple[str, str, str]
"""Cluster, namespace, account: red-box limits each of them, and none waits for another."""


class StatusRules(Protocol):
    """The statuses of one kind of pod that has a job."""

    def waiting(self, pod: BoundPod, *, reason: str, message: str) -> Object: ...
    def of_job(self, pod: BoundPod, job: Job) -> Object | None: ...
    def refused(self, pod: BoundPod, refusal: JobRefusal) -> Object: ...


class PodReconciler:
    """Follows the pods and the jobs of all virtual nodes."""

    def __init__(
        self,
        objects: ObjectClient,
        clusters: ClusterRegistry,
        submitter: PodSubmitter,
        host: str,
        *,
        now: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.informer = PodInformer(objects, self.enqueue, self._pod_deleted)
        self.queue: WorkQueue[Place] = WorkQueue()
        self.job_feeds: dict[str, PodJobFeed] = {}
        """By SlurmCluster."""
        self.on_delete: list[Callable[[BoundPod], None]] = []
        self.why_no_pods: Callable[[], str] = lambda: ""
        """Why pods other than companions are not submitted now: a policy of the chart is not in force."""
        self._objects = objects
        self._clusters = clusters
        self._submitter = submitter
        self._host = host
        self._now = now
        self._wall_clock = wall_clock
        self._feed_tasks: dict[str, asyncio.Task[None]] = {}
        self._tries: dict[Place, int] = {}
        self._warnings = GroupedWarnings("pods not reconciled")
        self._verified: set[str] = set()  # uids of verified companions, until their status shows it
        self._missing_since: dict[str, float] = {}  # by uid, where red-box had the job and lists none now
        self._rejected: dict[str, JobRefusal] = {}  # by uid, until the status shows it: submitted only once
        self._cancelled: set[str] = set()  # uids of pods being deleted whose job was cancelled
        self._forced: set[str] = set()  # those of them that were cancelled by force
        self._events = PodEvents(objects)
        self._orphans = OrphanSweep(objects, self.informer, lambda: self.job_feeds, self._specs)
        self._writing = asyncio.Semaphore(AT_ONCE)
        self._calling: defaultdict[RedboxCaller, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(AT_ONCE)
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informer.run())
            group.create_task(self.queue.run(self._reconcile, workers=None))
            group.create_task(self._orphans.run())
            while True:
                self._update_job_feeds(group)
                await asyncio.sleep(1.0)

    def enqueue(self, place: Place) -> None:
        self.queue.forget(place)
        if place in self.informer.pods:
            self.queue.add(place)
        else:
            self._tries.pop(place, None)
            self._warnings.recovered("/".join(place))

    # -- jobs of each SlurmCluster

    def _update_job_feeds(self, group: asyncio.TaskGroup) -> None:
        """One watch of jobs for each client."""
        has_jobs = bool(self.informer.by_key)  # where delivery is no longer Virtual they end as they began
        clusters = {
            name: cluster
            for name, cluster in self._clusters.followed.items()
            if has_jobs or cluster.cluster.spec.has_virtual_nodes
        }
        for name, feed in list(self.job_feeds.items()):
            if name not in clusters or clusters[name].client is not feed.client:
                self._feed_tasks.pop(name).cancel()
                del self.job_feeds[name]
        for name, cluster in clusters.items():
            if name not in self.job_feeds and self.informer.synced:
                callbacks = (self._is_row_of_pod, self._job_changed, self._enqueue_all)
                feed = self.job_feeds[name] = PodJobFeed(name, cluster.client, *callbacks)
                self._feed_tasks[name] = group.create_task(feed.run())
                self._enqueue_all()

    def _specs(self) -> dict[str, SlurmCluster]:
        return {name: followed.cluster for name, followed in self._clusters.followed.items()}

    def _is_row_of_pod(self, key: RowKey) -> bool:
        places = self.informer.by_key.get(key.key, ())
        return any(row_key_of(self.informer.pods[place]) == key for place in places)

    def _job_changed(self, key: str) -> None:
        for place in tuple(self.informer.by_key.get(key, ())):
            self.enqueue(place)

    def _enqueue_all(self) -> None:
        """After a red-box has answered (again): calls that failed before may succeed."""
        for place in tuple(self.informer.pods):
            self.enqueue(place)

    # -- one pod

    async def _reconcile(self, place: Place) -> None:
        """Reconcile once; on failure, or where only time brings a change, again after a pause."""
        pod = self.informer.pods.get(place)
        if pod is None:
            return
        self.queue.forget(place)
        try:
            pause = await self._reconcile_pod(pod)
        except (ApiError, TimeoutError) as error:
            self._warnings.failed("/".join(place), error)
            pause = self._backoff(pod)
        except Exception:
            # A pod that one tenant wrote must not stop the service for all.
            log.exception("pod", namespace=pod.namespace, name=pod.name)
            pause = self._backoff(pod)
        else:
            self._warnings.recovered("/".join(place))
        if pause is None:
            self._tries.pop(place, None)
        elif place in self.informer.pods:
            self.queue.add_later(place, pause)

    async def _reconcile_pod(self, pod: BoundPod) -> float | None:
        """The pause until the next reconciliation; None where only a change makes one necessary."""
        connection = self._clusters.of_node(pod.node)
        if pod.is_being_deleted:
            return await self._reconcile_deletion(pod, connection)
        if pod.has_ended:
            self._forget(pod)
        elif connection is None:
            return None
        elif refusal := self._rejected.get(pod.uid):
            await self._write(pod, _rules_of(pod).refused(pod, refusal))
        elif _has_job(pod, connection):
            try:
                return await self._reconcile_job(pod, connection)
            except SubmissionPending as pending:
                return await self._report_pending(pod, pending)
            except SubmissionRejected as rejected:
                self._rejected[pod.uid] = rejected.refusal
                await self._write(pod, _rules_of(pod).refused(pod, rejected.refusal))
        else:
            status = pod_status.daemon_pod if pod.role is BoundPodKind.DAEMON else pod_status.foreign_pod
            await self._write(pod, status(pod))
        return None

    async def _reconcile_deletion(self, pod: BoundPod, connection: ClusterConnection | None) -> float | None:
        """The status first, with the exit codes of its containers; then the pod goes.

        Also without a SlurmCluster: no other component would remove it. A companion has no container that
        would have to end.
        """
        if pod.role is BoundPodKind.POD and not pod.has_ended and connection is not None:
            try:
                if not await self._end_job(pod, connection):
                    return self._overdue_in(pod)  # or when its job changes, or red-box answers again
            except SubmissionPending as pending:
                return await self._report_pending(pod, pending)
        async with self._writing:
            await self._objects.delete(_path(pod), uid=pod.uid, grace_s=0)
        return None

    async def _end_job(self, pod: BoundPod, connection: ClusterConnection) -> bool:
        """Cancel the job, once, and show its end; whether it has ended, or never was and never will be.

        Red-box keeps the grace period of the pod's spec. That of the deletion may be shorter: after it the
        job is cancelled by force.
        """
        cluster = connection.cluster.name
        feed = self.job_feeds.get(cluster)
        if feed is None or feed.fault:
            return False
        job = feed.of_pod(pod)
        force = self._overdue_in(pod) == 0
        if job is None or not (self._is_cancelled(pod, job, force=force) or job.phase in FINAL_PHASES):
            async with self._calling[cluster, pod.namespace, pod.account]:
                cancelled = await self._submitter.cancel(pod, connection, force=force)
            if cancelled is None:
                await self._write(pod, run_status.never_ran(pod))
                return True
            self._cancelled.add(pod.uid)
            if force:
                self._forced.add(pod.uid)
            feed.take(cancelled)
            job = feed.of_pod(pod) or cancelled
        return await self._show(pod, job, connection) or job.phase in FINAL_PHASES

    def _is_cancelled(self, pod: BoundPod, job: Job, *, force: bool) -> bool:
        if force:
            return pod.uid in self._forced
        return job.cancel_requested or pod.uid in self._cancelled

    def _overdue_in(self, pod: BoundPod) -> float | None:
        """How long its job may still take to end; None once it was cancelled by force."""
        if pod.uid in self._forced:
            return None
        left = datetime.fromisoformat(pod.ends_by) - self._wall_clock()
        return max(0.0, left.total_seconds() + RUNNERS_END_S)

    async def _reconcile_job(self, pod: BoundPod, connection: ClusterConnection) -> float | None:
        cluster = connection.cluster.name
        feed = self.job_feeds.get(cluster)
        if feed is None or feed.fault:  # its answer enqueues all pods; a job that exists goes on meanwhile
            if feed is not None and not pod.is_submitted:
                message = f"the red-box of {cluster} cannot be reached: {feed.fault}"
                await self._write_waiting(pod, "RedboxUnreachable", message)
            return None
        if pod.role is BoundPodKind.POD and not pod.is_submitted and (problem := self.why_no_pods()):
            raise SubmissionPending("PodsNotServed", problem)
        job = feed.of_pod(pod)
        is_confirmed = pod.is_submitted or pod.uid in self._verified
        if job is None or not is_confirmed or job.phase is Phase.SUBMITTING:
            async with self._calling[cluster, pod.namespace, pod.account]:
                if job is None and is_confirmed:
                    job = await self._submitter.submitted_job(pod, connection)
                    job = job or self._missing_job(pod, cluster)
                else:
                    job = await self._submitter.attach_or_submit(pod, connection)
            self._verified.add(pod.uid)
            feed.take(job)
        await self._show(pod, feed.of_pod(pod) or job, connection)
        self._missing_since.pop(pod.uid, None)
        return self._backoff(pod) if job.phase is Phase.SUBMITTING else None

    async def _show(self, pod: BoundPod, job: Job, connection: ClusterConnection) -> bool:
        """Write status and events; whether the pod has ended. No reconciliation follows its last status."""
        status = _rules_of(pod).of_job(pod, job)
        has_ended = status is not None and status["phase"] in ENDED
        if has_ended:
            await self._events.publish(pod, job)
        if status is not None:
            is_routed = pod.role is BoundPodKind.POD and connection.cluster.spec.pods.routed
            await self._write(pod, run_status.with_pod_address(status) if is_routed else status)
        await self._events.publish(pod, job)
        if feed := self.job_feeds.get(connection.cluster.name):
            feed.drop_events(job)
        return has_ended

    def _missing_job(self, pod: BoundPod, cluster: str) -> Job:
        """Lost only after a while: a red-box that lost its journal may find the job again."""
        now = self._now()
        if now - self._missing_since.setdefault(pod.uid, now) < LOST_AFTER_S:
            raise SubmissionPending("NotKnown", f"the red-box of {cluster} has no record of this job now")
        return Job(
            key=pod.key,
            attempt=pod.attempt,
            owner=OwnerRef(cluster=cluster, namespace=pod.namespace, account=pod.account),
            user="",
            phase=Phase.LOST,
            message=f"the red-box of {cluster} no longer has a record of this job: its outcome is unknown",
        )

    async def _report_pending(self, pod: BoundPod, pending: SubmissionPending) -> float:
        pause = pending.after_s or self._backoff(pod)
        if pending.event:
            await self._events.warn(pod, pending.event, str(pending))
        if self._tries.get(pod.place, 0) > SILENT_TRIES and not pod.is_submitted:
            with contextlib.suppress(ApiError):
                await self._write_waiting(pod, pending.reason, str(pending))
        return pause

    async def _write_waiting(self, pod: BoundPod, reason: str, message: str) -> None:
        await self._write(pod, _rules_of(pod).waiting(pod, reason=reason, message=message))

    async def _write(self, pod: BoundPod, status: Object) -> None:
        status = {"hostIP": self._host, "hostIPs": [{"ip": self._host}], **status}
        if digest_of(status) == pod.status_digest:
            return
        body = {"metadata": {"namespace": pod.namespace, "uid": pod.uid}, "status": status}
        async with self._writing:
            try:
                await self._objects.apply(_path(pod), body, subresource="status")
            except ApiRefused as refusal:
                if refusal.status == HTTPStatus.UNPROCESSABLE_ENTITY:  # only another status can be accepted
                    log.warning("status refused", namespace=pod.namespace, name=pod.name, error=str(refusal))
                elif refusal.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                    raise  # else deleted, or replaced by another of its name: an event follows

    def _pod_deleted(self, pod: BoundPod) -> None:
        self._forget(pod)
        for callback in self.on_delete:
            callback(pod)

    def _forget(self, pod: BoundPod) -> None:
        self._verified.discard(pod.uid)
        self._missing_since.pop(pod.uid, None)
        self._rejected.pop(pod.uid, None)
        self._cancelled.discard(pod.uid)
        self._forced.discard(pod.uid)
        self._events.forget(pod)
        for feed in self.job_feeds.values():
            feed.forget(pod)

    def _backoff(self, pod: BoundPod) -> float:
        tries = self._tries[pod.place] = self._tries.get(pod.place, 0) + 1
        return BACKOFF.pause_s(tries)


def _rules_of(pod: BoundPod) -> StatusRules:
    return run_status if pod.role is BoundPodKind.POD else pod_status


def _has_job(pod: BoundPod, connection: ClusterConnection) -> bool:
    """Where pods are no longer enabled, those that were submitted go on."""
    if pod.role is BoundPodKind.POD:
        return pod.is_submitted or connection.cluster.spec.pods.enabled
    return pod.role is BoundPodKind.JOB


def _path(pod: BoundPod) -> ResourcePath:
    return ResourcePath("Pod", pod.name, pod.namespace)
