"""Writes the status of a SlurmCluster or SlurmEndpoint: the answers of its red-box, and who uses it."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from pydantic import ValidationError

from redbox_api.errors import RedboxError
from redbox_api.models import Cluster
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS, SlurmCluster
from redbox_clusters.slurm_endpoint import SLURM_ENDPOINTS, SlurmEndpoint, kept_metadata
from redbox_kube.api.objects import ResourcePath
from redbox_kube.runtime.clock import now
from redbox_kube.runtime.paces import Pace
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.slurmcluster_status import (
    ClusterFacts,
    ClusterUsers,
    SlurmClusterStatus,
    SlurmEndpointStatus,
    cluster_events,
    cluster_status_of,
    differ_in_times_only,
    is_reported,
)
from redbox_operator.object_cache import ObjectCache
from redbox_operator.slurmcluster.cluster_users import gateways_of
from redbox_operator.slurmcluster.job_feed import RedboxLink, RedboxUnavailable, stale_since
from redbox_operator.slurmcluster.registry import NOT_CONNECTED, ClusterEntry, RedboxLinks

log = structlog.get_logger(__name__)
STATUSES_AT_ONCE, STATUS_EVERY_S = 10, 2.0
"""Of one SlurmEndpoint, for which users choose what answers."""


class ClusterStatusWriter:
    """Writes statuses that have changed, and the events of their conditions."""

    def __init__(
        self,
        writer: StatusWriter,
        cache: ObjectCache,
        links: RedboxLinks,
        *,
        limited: bool,
        write_later: Callable[[str, float], None],
    ) -> None:
        """`write_later` is called with a key, and the seconds after which its status may be written."""
        self._writer = writer
        self._cache = cache
        self._links = links
        self._limited = limited
        self._write_later = write_later
        self._pace = Pace(STATUSES_AT_ONCE, STATUS_EVERY_S)

    async def write(self, entry: ClusterEntry, in_use_by: ClusterUsers) -> None:
        """Unless it is as it was; `in_use_by` is of one that is being deleted."""
        link, where = entry.link, path_of_cluster(entry.cluster)
        watch = link.partition_watch if link else None
        description, roles = await describe(link) if link else (None, None)
        status = _read(entry.cluster)
        own = [condition for condition in status.conditions if not is_reported(condition, entry.cluster)]
        before = status.model_copy(update={"conditions": own})
        trouble = self._trouble(entry)
        after = cluster_status_of(
            ClusterFacts(
                cluster=entry.cluster,
                before=before,
                trouble=trouble,
                reason="Answers" if trouble is None else "Misconfigured" if link is None else "Unreachable",
                description=description,
                roles=roles,
                partitions=watch.partitions if watch else None,
                use_is_due=watch is None or not watch.use_due_in_s,
                stale_since=stale_since(link.bookmark_message) if link else None,
                phases=[job.phase for job in self._cache.jobs_of(entry.cluster.key)],
                orphans=entry.orphans,
                in_use_by=in_use_by,
                gateways=await gateways_of(entry.cluster, self._writer.objects),
                pods_reported=len(own) < len(status.conditions),
                now=now(),
            )
        )
        is_new = not before.conditions and not isinstance(after, SlurmEndpointStatus)
        if link is not None and link.reachable is None and is_new:
            return  # the first answer is under way; the red-box of a SlurmEndpoint waits for this status
        if after == before or (
            self._limited and entry.written and differ_in_times_only(entry.written, after)
        ):
            return
        uid = entry.cluster.uid
        if entry.cluster.namespace and (pause_s := self._pace.take(uid)):
            self._write_later(entry.cluster.key, pause_s)
            return
        written = await self._writer.status(
            where, uid, after.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        if written is not None:
            entry.written = after
            if watch and after.partitions != before.partitions:
                watch.written()
            metadata = kept_metadata(written["metadata"]) if entry.cluster.namespace else written["metadata"]
            entry.cluster = entry.cluster.model_copy(
                update={"metadata": metadata, "status": written.get("status", {})}
            )
            await self._writer.publish(where, uid, cluster_events(before, after))

    def _trouble(self, entry: ClusterEntry) -> str | None:
        if entry.link is None:
            return self._links.troubles.get(entry.cluster.key, NOT_CONNECTED)
        return None if entry.link.reachable else entry.link.trouble


async def describe(link: RedboxLink) -> tuple[Cluster | None, list[str] | None]:
    """The cluster, and the operator's roles there, where red-box answers and permits it."""
    description = None
    try:
        if link.reachable:
            description = await link.describe()
            return description, await link.own_roles()
    except (RedboxUnavailable, RedboxError) as error:
        log.info("redbox does not describe itself", slurmcluster=link.cluster.key, error=str(error))
    return description, None


def path_of_cluster(cluster: SlurmCluster) -> ResourcePath:
    kind = SLURM_ENDPOINTS if cluster.namespace else SLURM_CLUSTERS
    return ResourcePath(kind, cluster.name, cluster.namespace)


def _read(cluster: SlurmCluster) -> SlurmClusterStatus:
    kind = SlurmEndpointStatus if isinstance(cluster, SlurmEndpoint) else SlurmClusterStatus
    try:
        return kind.model_validate(cluster.status)
    except ValidationError:
        return kind()
