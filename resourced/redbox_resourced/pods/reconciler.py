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
    has no job             -> a status that says so; a pod that would be replaced at once waits instead
    red-box unreachable    -> wait for it; a pod without a job says so
    job not confirmed      -> verify the pod, attach or submit
    job known              -> write its status
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

import structlog

from redbox_api.feed import RowKey
from redbox_api.models import Job, OwnerRef, Phase
from redbox_clusters.slurm_cluster import SlurmCluster, SlurmClusterSpec
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import ApiError, Object, ObjectClient
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.pods import pod_status
from redbox_resourced.pods.ending.deletions import PodDeletions
from redbox_resourced.pods.ending.orphans import OrphanCleanup
from redbox_resourced.pods.ephemeral.starts import EphemeralStarts, names_due
from redbox_resourced.pods.exit_status import JobRefusal
from redbox_resourced.pods.informer import PodInformer
from redbox_resourced.pods.job_feed import PodJobFeed, row_key_of
from redbox_resourced.pods.pod_view import ENDED, BoundPod, BoundPodKind
from redbox_resourced.pods.reported import run_status
from redbox_resourced.pods.reported.pod_events import PodEvents
from redbox_resourced.pods.reported.status_writes import PodStatusWriter
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.pods.submission_errors import SubmissionPending, SubmissionRejected
from redbox_shared.backoff import Backoff
from redbox_shared.job_end import CONTRADICTION, LOST_AFTER_S
from redbox_shared.keyed_semaphores import KeyedSemaphores

log = structlog.get_logger(__name__)
AT_ONCE = 32
BACKOFF = Backoff(0.05, 60.0)
HELD = Backoff(5.0, 300.0)
"""Of a pod that waits because it was refused: what refused it may change, such as a mapping at red-box."""
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
        self.on_shown: list[Callable[[BoundPod, Job, SlurmCluster], None]] = []
        """After each reconciliation that has shown a job."""
        self.why_no_pods: Callable[[], str] = lambda: ""
        """Why pods other than companions are not submitted now: a policy of the chart is not in force."""
        self._objects = objects
        self._clusters = clusters
        self._submitter = submitter
        self._now = now
        self._feed_tasks: dict[str, asyncio.Task[None]] = {}
        self._tries: dict[Place, int] = {}
        self._warnings = GroupedWarnings("pods not reconciled")
        self._verified: set[str] = set()  # uids of verified companions, until their status shows it
        self._missing_since: dict[str, float] = {}  # by uid, where red-box had the job and lists none now
        self._rejected: dict[str, JobRefusal] = {}  # by uid, until the status shows it: submitted only once
        self._held: dict[str, float] = {}  # by uid, until when a pod that was refused waits for its next try
        self._settings: dict[str, SlurmClusterSpec] = {}  # by SlurmCluster, as all pods have seen them
        self._events = PodEvents(objects)
        self._ephemeral = EphemeralStarts(objects, submitter)
        self._orphans = OrphanCleanup(
            objects, self.informer, lambda: self.job_feeds, self._specs, self._events
        )
        self._statuses = PodStatusWriter(objects, host, now=now)
        self._callers = KeyedSemaphores[RedboxCaller](AT_ONCE)
        self._deletions = PodDeletions(
            objects,
            clusters,
            submitter,
            self.job_feeds,
            self._statuses,
            self._events,
            self._show,
            self._calling,
            wall_clock,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informer.run())
            group.create_task(self.queue.run(self._reconcile, workers=None))
            group.create_task(self._orphans.run())
            while True:
                self._update_job_feeds(group)
                self._compare_settings()
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
                callbacks = (self._is_row_of_pod, self._job_changed, partial(self._answers, name))
                feed = self.job_feeds[name] = PodJobFeed(name, cluster.client, *callbacks)
                self._feed_tasks[name] = group.create_task(feed.run())
                self._enqueue_all()

    def _compare_settings(self) -> None:
        """Where one has changed, pods that waited may run, as after `pods.enabled: true`."""
        settings = {name: cluster.spec for name, cluster in self._specs().items()}
        if settings != self._settings:
            self._settings = settings
            self._enqueue_all()

    def _specs(self) -> dict[str, SlurmCluster]:
        return {name: followed.cluster for name, followed in self._clusters.followed.items()}

    def _is_row_of_pod(self, key: RowKey) -> bool:
        places = self.informer.by_key.get(key.key, ())
        return any(row_key_of(self.informer.pods[place]) == key for place in places)

    def _job_changed(self, key: str) -> None:
        for place in tuple(self.informer.by_key.get(key, ())):
            self.enqueue(place)

    def _answers(self, cluster: str) -> None:
        """Its red-box has answered (again): it may be another version."""
        self._submitter.too_old.discard(cluster)
        self._enqueue_all()

    def _enqueue_all(self) -> None:
        """After a red-box has answered (again), or settings have changed: what failed before may succeed."""
        self._held.clear()
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
        for after_s in (pause, self._statuses.due_in(pod)):
            if after_s is not None and place in self.informer.pods:
                self.queue.add_later(place, after_s)

    async def _reconcile_pod(self, pod: BoundPod) -> float | None:
        """The pause until the next reconciliation; None where only a change makes one necessary."""
        connection = self._clusters.of_node(pod.node)
        try:
            if pod.is_being_deleted:
                return await self._deletions.reconcile(pod)
            if pod.has_ended:
                self._forget(pod)
            elif connection is not None:
                return await self._reconcile_living(pod, connection)
        except SubmissionPending as pending:
            return await self._report_pending(pod, pending)
        return None

    async def _reconcile_living(self, pod: BoundPod, connection: ClusterConnection) -> float | None:
        if refusal := self._rejected.get(pod.uid):
            await self._statuses.write(pod, _rules_of(pod).refused(pod, refusal))
            return None
        if (due := self._held.get(pod.uid, 0.0) - self._now()) > 0:
            return due
        if not _has_job(pod, connection):
            return await self._show_not_run(pod, connection)
        try:
            return await self._reconcile_job(pod, connection)
        except SubmissionRejected as rejected:
            refusal = rejected.refusal
            if pod.role is BoundPodKind.POD and pod.is_replaced:
                return await self._hold(pod, refusal.reason, refusal.sentence)
            self._rejected[pod.uid] = refusal
            await self._statuses.write(pod, _rules_of(pod).refused(pod, refusal))
            return None

    async def _show_not_run(self, pod: BoundPod, connection: ClusterConnection) -> float | None:
        if pod.role is BoundPodKind.DAEMON:
            await self._statuses.write(pod, pod_status.daemon_pod(pod))
        elif not pod.is_replaced:
            await self._statuses.write(pod, pod_status.foreign_pod(pod))
        elif pod.role is BoundPodKind.POD:
            name = connection.cluster.name
            return await self._hold(pod, "PodsNotServed", f"pods.enabled of SlurmCluster {name} is false")
        else:
            return await self._hold(pod, pod_status.NOT_RUN, pod_status.NOT_RUN_MESSAGE)
        return None

    async def _hold(self, pod: BoundPod, reason: str, sentence: str) -> float:
        """It waits with the reason, as kubelets have it: failed, it would be made again for ever."""
        await self._events.warn(pod, reason, sentence)
        await self._write_waiting(pod, reason, sentence)
        tries = self._tries[pod.place] = self._tries.get(pod.place, 0) + 1
        pause = HELD.pause_s(tries)
        self._held[pod.uid] = self._now() + pause
        return pause

    async def _reconcile_job(self, pod: BoundPod, connection: ClusterConnection) -> float | None:
        cluster = connection.cluster.name
        feed = self.job_feeds.get(cluster)
        if feed is None or feed.fault:  # its answer enqueues all pods; a job that exists goes on meanwhile
            if feed is not None and not pod.is_submitted:
                message = f"the red-box of {cluster} cannot be reached: {feed.fault}"
                await self._write_waiting(pod, "RedboxUnreachable", message)
            return None
        job = feed.of_pod(pod)
        if job is None and pod.role is BoundPodKind.POD and not pod.is_submitted:
            self._check_may_submit(connection.cluster)
        is_confirmed = pod.is_submitted or pod.uid in self._verified
        if job is None or not is_confirmed or job.phase is Phase.SUBMITTING:
            async with self._calling(pod, cluster):
                if job is None and is_confirmed:
                    job = await self._submitter.submitted_job(pod, connection)
                    job = job or self._missing_job(pod, cluster)
                else:
                    job = await self._submitter.attach_or_submit(pod, connection)
            self._verified.add(pod.uid)
            feed.take(job)
        job = feed.of_pod(pod) or job
        if names_due(pod, job):  # their start may take seconds
            await self._show(self._ephemeral.shown(pod), job, connection)
        pod, after_s = await self._ephemeral.begin(pod, job, connection)
        await self._show(pod, feed.of_pod(pod) or job, connection)
        self._missing_since.pop(pod.uid, None)
        return self._backoff(pod) if job.phase is Phase.SUBMITTING else after_s

    def _check_may_submit(self, cluster: SlurmCluster) -> None:
        if problem := self.why_no_pods():
            raise SubmissionPending("PodsNotServed", problem)
        if "deletionTimestamp" in cluster.metadata:
            message = f"SlurmCluster {cluster.name} is being deleted: no job is submitted there"
            raise SubmissionPending("ClusterBeingDeleted", message)

    async def _show(self, pod: BoundPod, job: Job, connection: ClusterConnection) -> bool:
        """Write status and events; whether the pod has ended. No reconciliation follows its last status."""
        status = _rules_of(pod).of_job(pod, job)
        has_ended = status is not None and status["phase"] in ENDED
        if job.reason == CONTRADICTION:
            await self._events.warn(pod, CONTRADICTION, job.message or "")
        if has_ended:
            await self._events.publish(pod, job)
        is_routed = pod.role is BoundPodKind.POD and connection.cluster.spec.pods.routed
        if status is not None:
            has_address = is_routed and not (job.pod and job.pod.ports)
            await self._statuses.write(pod, run_status.with_pod_address(status) if has_address else status)
        for shown in self.on_shown:
            shown(pod, job, connection.cluster)
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
        is_known = pending.after_s is not None or self._tries.get(pod.place, 0) > SILENT_TRIES
        if is_known and not pod.is_submitted:  # red-box was asked for a while before
            with contextlib.suppress(ApiError):
                await self._write_waiting(pod, pending.reason, str(pending))
        return pause

    async def _write_waiting(self, pod: BoundPod, reason: str, message: str) -> None:
        await self._statuses.write(pod, _rules_of(pod).waiting(pod, reason=reason, message=message))

    def _pod_deleted(self, pod: BoundPod) -> None:
        self._deletions.pod_is_gone(pod)
        self._forget(pod)
        for callback in self.on_delete:
            callback(pod)

    def _forget(self, pod: BoundPod) -> None:
        self._verified.discard(pod.uid)
        self._missing_since.pop(pod.uid, None)
        self._rejected.pop(pod.uid, None)
        self._held.pop(pod.uid, None)
        self._deletions.forget(pod)
        self._statuses.forget(pod)
        self._events.forget(pod)
        self._ephemeral.forget(pod)
        for feed in self.job_feeds.values():
            feed.forget(pod)

    def _calling(self, pod: BoundPod, cluster: str) -> asyncio.Semaphore:
        return self._callers.of((cluster, pod.namespace, pod.account))

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
