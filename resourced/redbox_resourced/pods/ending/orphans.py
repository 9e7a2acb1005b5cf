"""Cancels the jobs of pods that are gone, as after a forced deletion, or have ended.

A job without its pod is cancelled only after two complete and fresh lists of its namespace have no such pod,
and only if the virtual node is older than the job: else the Node was deleted, Kubernetes deleted its pods,
and the SlurmCluster's orphanPolicy decides. As resourced itself: the pod has no token any more.

The phase of a pod never goes back. So where red-box shows a job alive whose end it has shown before, because
that answer was wrong or Slurm runs the job again, no other part would follow or cancel it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from redbox_api.errors import NoSuchJob, RedboxError
from redbox_api.feed import RowKey
from redbox_api.models import Job
from redbox_clusters.node_labels import virtual_node
from redbox_clusters.slurm_cluster import OrphanPolicy, SlurmCluster
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiError, ObjectClient, ResourcePath
from redbox_resourced.pods.informer import PodInformer
from redbox_resourced.pods.job_feed import PodJobFeed, row_key_of
from redbox_resourced.pods.reported.pod_events import PodEvents

log = structlog.get_logger(__name__)
EVERY_S = 15.0
LISTS = 2
"""In a row, without the pod."""
OUTLIVES_POD = "JobOutlivesPod"


@dataclass
class OrphanCleanup:
    """Over all red-boxes."""

    objects: ObjectClient
    informer: PodInformer
    feeds: Callable[[], Mapping[str, PodJobFeed]]
    clusters: Callable[[], Mapping[str, SlurmCluster]]
    events: PodEvents
    _absent: dict[RowKey, int] = field(default_factory=dict)
    _reported: set[RowKey] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.clean_up()
            except (ApiError, RedboxError, TimeoutError) as error:
                log.warning("jobs without pods not listed", error=str(error))

    async def clean_up(self) -> None:
        """List once; cancel what has been without a pod in enough lists."""
        suspects = self._suspects() if self.informer.synced else {}
        for gone in self._absent.keys() - suspects.keys():
            del self._absent[gone]
        self._reported &= suspects.keys()
        uids = await self._pod_uids({key.namespace for key in suspects})
        ended = {row_key_of(pod): pod for pod in self.informer.pods.values() if pod.has_ended}
        for key, (cluster, feed, job) in suspects.items():
            if key.key in uids and key not in ended:
                self._absent.pop(key, None)
                continue
            self._absent[key] = self._absent.get(key, 0) + 1
            if self._absent[key] < LISTS:
                continue
            if pod := ended.get(key):
                await self.events.warn(pod, OUTLIVES_POD, _outlives(job))
                await self._cancel(feed, job)
            elif self._may_cancel(key, cluster, job):
                await self._cancel(feed, job)

    def _suspects(self) -> dict[RowKey, tuple[SlurmCluster, PodJobFeed, Job]]:
        clusters = self.clusters()
        living = {pod.uid for pod in self.informer.pods.values() if not pod.has_ended}
        return {
            key: (clusters[name], feed, job)
            for name, feed in self.feeds().items()
            if not feed.fault and name in clusters
            for key, job in feed.unclaimed.items()
            if key.key not in living and not job.cancel_requested
        }

    async def _pod_uids(self, namespaces: Collection[str]) -> set[str]:
        """Of all pods there, wherever they are bound."""
        return {
            pod.uid
            for namespace in sorted(namespaces)
            async for pod in self.objects.list_metadata(ResourcePath(kinds.POD, namespace=namespace))
        }

    def _may_cancel(self, key: RowKey, cluster: SlurmCluster, job: Job) -> bool:
        if self._is_node_older(cluster, job) or cluster.spec.orphan_policy is OrphanPolicy.CANCEL:
            return True
        if key not in self._reported:
            self._reported.add(key)
            why = "its virtual node is not older than the job, and orphanPolicy is Report"
            _named(cluster.name, job).warning("job without its pod", kept=why)
        return False

    def _is_node_older(self, cluster: SlurmCluster, job: Job) -> bool:
        if job.partition is None or job.submitted_at is None:
            return False
        since = self.informer.node_since(virtual_node(job.partition, cluster.name))
        return bool(since) and datetime.fromisoformat(since) < job.submitted_at

    async def _cancel(self, feed: PodJobFeed, job: Job) -> None:
        named = _named(feed.cluster, job)
        try:
            await feed.client.cancel_job(job.key, attempt=job.attempt, force=True, owner=job.owner)
            named.warning("job without its pod cancelled")
        except NoSuchJob:
            feed.unclaimed.pop(RowKey.of(job), None)
        except RedboxError as error:
            named.warning("job without its pod not cancelled", error=str(error))


def _outlives(job: Job) -> str:
    return (
        f"Slurm job {job.job_id or 'not known'} lives although this pod has ended, by what red-box answered "
        "before: it is cancelled"
    )


def _named(cluster: str, job: Job) -> structlog.typing.FilteringBoundLogger:
    bound: structlog.typing.FilteringBoundLogger = log.bind(
        slurmcluster=cluster, job_id=job.job_id, key=job.key
    )
    return bound
