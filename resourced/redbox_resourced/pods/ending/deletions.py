"""Removes pods that are being deleted: first the end of the job and the last status, then the pod.

A pod whose job cannot be cancelled any more, because its SlurmCluster is gone or gives its jobs up, goes with
an event and a line in the log that name the job: nothing else will ever do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from redbox_api.models import FINAL_PHASES, Job
from redbox_kube.api import kinds
from redbox_kube.api.objects import ObjectClient, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.pods.job_feed import PodJobFeed
from redbox_resourced.pods.pod_view import BoundPod, BoundPodKind
from redbox_resourced.pods.reported import run_status
from redbox_resourced.pods.reported.pod_events import PodEvents
from redbox_resourced.pods.reported.status_writes import PodStatusWriter
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.pods.submission_errors import SubmissionPending
from redbox_shared.job_end import LOST_AFTER_S

log = structlog.get_logger(__name__)
RUNNERS_END_S = 20.0
"""Beyond the grace period of a deletion: red-box allows the runner 15 s for its last report."""
ABANDONED = "JobAbandoned"
NOT_ENDED = "JobNotEnded"
LATE_S = 60.0
"""After its job was cancelled by force an event says what a pod still waits for."""

Show = Callable[[BoundPod, Job, ClusterConnection], Awaitable[bool]]
"""Writes the status of a pod by its job; whether the pod has ended."""


@dataclass
class PodDeletions:
    """Of all pods on virtual nodes."""

    objects: ObjectClient
    clusters: ClusterRegistry
    submitter: PodSubmitter
    feeds: Mapping[str, PodJobFeed]
    statuses: PodStatusWriter
    events: PodEvents
    show: Show
    calling: Callable[[BoundPod, str], AbstractAsyncContextManager[object]]
    """The share of the pod's account in the requests to this cluster's red-box."""
    wall_clock: Callable[[], datetime]
    _cancelled: set[str] = field(default_factory=set)
    """Uids of pods whose job was cancelled."""
    _forced: set[str] = field(default_factory=set)
    """Those of them that were cancelled by force."""

    async def reconcile(self, pod: BoundPod) -> float | None:
        """The status first, with the exit codes of its containers; then the pod goes.

        Also without a SlurmCluster: no other component would remove it. A companion has no container that
        would have to end. Returns after what pause to look again; None: after a change.
        """
        connection = self.clusters.of_node(pod.node)
        if pod.role is BoundPodKind.POD and not pod.has_ended:
            if why := self._why_abandoned(pod):
                await self.events.warn(pod, ABANDONED, why)
            elif connection is None and self.clusters.may_have_node(pod.node):
                why = f"the SlurmCluster of node {pod.node} cannot be used"
                await self._report_late(pod, why)
                raise SubmissionPending("NoCluster", why)
            elif connection is not None and not await self._end_job(pod, connection):
                await self._report_late(pod, self._why_not_ended(pod, connection.cluster.name))
                # Or when its job changes, or red-box answers again: only that where it is overdue already.
                return self._overdue_in(pod) or self._late_in(pod) or None
        async with self.statuses.slots.of(pod.namespace):
            path = ResourcePath(kinds.POD, pod.name, pod.namespace)
            await self.objects.delete(path, uid=pod.uid, gracePeriodSeconds=0)
        return None

    def pod_is_gone(self, pod: BoundPod) -> None:
        """Also of one that was deleted by force, or with its Node."""
        if why := self._why_abandoned(pod):
            log.warning("pod without its job's end", namespace=pod.namespace, name=pod.name, abandoned=why)
        self.forget(pod)

    def forget(self, pod: BoundPod) -> None:
        self._cancelled.discard(pod.uid)
        self._forced.discard(pod.uid)

    def _why_abandoned(self, pod: BoundPod) -> str:
        """Why nothing cancels its job, and which job that is; empty where something does, or it has none."""
        if pod.role is not BoundPodKind.POD or not pod.is_submitted or pod.has_ended:
            return ""
        connection = self.clusters.of_node(pod.node)
        if connection is not None:
            if not connection.cluster.spec.abandon_jobs:
                return ""
            cause = f"SlurmCluster {connection.cluster.name} has abandonJobs"
        elif self.clusters.may_have_node(pod.node):
            return ""
        else:
            cause = f"the SlurmCluster of node {pod.node} is gone"
        return f"{cause}: {pod.submitted or 'its job'} was not cancelled, and may run on in Slurm"

    async def _report_late(self, pod: BoundPod, why: str) -> None:
        """As kubelets do of a pod that they cannot kill: its author sees nothing else of the wait."""
        if self._late_in(pod) == 0:
            message = f"this pod waits for the end of its job: {why}. `kubectl delete --force` does not wait"
            await self.events.warn(pod, NOT_ENDED, message)

    def _why_not_ended(self, pod: BoundPod, cluster: str) -> str:
        feed = self.feeds.get(cluster)
        if feed is None or feed.fault:
            return f"the red-box of {cluster} cannot be reached"
        return f"{pod.submitted or 'its job'} has not ended in Slurm"

    async def _end_job(self, pod: BoundPod, connection: ClusterConnection) -> bool:
        """Cancel the job, once, and show its end; whether it has ended, or never was and never will be.

        Red-box keeps the grace period of the pod's spec. That of the deletion may be shorter: after it the
        job is cancelled by force.
        """
        cluster = connection.cluster.name
        feed = self.feeds.get(cluster)
        if feed is None or feed.fault:
            return False
        job = feed.of_pod(pod)
        force = self._overdue_in(pod) == 0
        if job is None or not (self._is_cancelled(pod, job, force=force) or job.phase in FINAL_PHASES):
            try:
                async with self.calling(pod, cluster):
                    cancelled = await self.submitter.cancel(pod, connection, force=force)
            except SubmissionPending as pending:
                await self._report_late(pod, str(pending))
                raise
            if cancelled is None:
                await self._check_has_no_job(pod, cluster)
                await self.statuses.write(pod, run_status.never_ran(pod))
                return True
            self._cancelled.add(pod.uid)
            if force:
                self._forced.add(pod.uid)
            feed.take(cancelled)
            job = feed.of_pod(pod) or cancelled
        return await self.show(pod, job, connection) or job.phase in FINAL_PHASES

    async def _check_has_no_job(self, pod: BoundPod, cluster: str) -> None:
        """A red-box without its journal has no record of a job that runs: it may yet find it.

        After a while the pod goes, with an event that names the job.
        """
        if not pod.is_submitted:
            return
        why = f"the red-box of {cluster} has no record of {pod.submitted or 'its job'}"
        if self._left_s(pod) + LOST_AFTER_S > 0:
            await self._report_late(pod, f"{why}. The HPC administrator restores it by `redbox recover`")
            raise SubmissionPending("NotKnown", why)
        await self.events.warn(pod, ABANDONED, f"{why}: it was not cancelled, and may run on in Slurm")
        log.warning("pod without its job's end", namespace=pod.namespace, name=pod.name, abandoned=why)

    def _is_cancelled(self, pod: BoundPod, job: Job, *, force: bool) -> bool:
        if force:
            return pod.uid in self._forced
        return job.cancel_requested or pod.uid in self._cancelled

    def _overdue_in(self, pod: BoundPod) -> float | None:
        """How long its job may still take to end; None once it was cancelled by force."""
        if pod.uid in self._forced:
            return None
        return max(0.0, self._left_s(pod))

    def _late_in(self, pod: BoundPod) -> float:
        return max(0.0, self._left_s(pod) + LATE_S)

    def _left_s(self, pod: BoundPod) -> float:
        """Until its job is cancelled by force."""
        left = datetime.fromisoformat(pod.ends_by) - self.wall_clock()
        return left.total_seconds() + RUNNERS_END_S
