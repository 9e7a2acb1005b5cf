"""SlurmClusters as they come, change and go: a link to the red-box of each, its status, its finalizer.

One link serves all SlurmJobs of its cluster. While a red-box is away that is said once, here, and nothing is
written about any of its jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import structlog
from pydantic import ValidationError

from redbox_api.errors import RedboxError
from redbox_api.models import Cluster
from redbox_kube.api.events import NORMAL, WARNING
from redbox_kube.api.objects import ApiError, ApiRefused, Object, ResourcePath
from redbox_kube.names import API_VERSION
from redbox_kube.node_labels import gateway_key
from redbox_kube.redbox_token import ServiceAccountName
from redbox_kube.runtime.clock import now
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_operator.api.conditions import Telling
from redbox_operator.api.constants import CLUSTER_FINALIZER, cluster_finalizer
from redbox_operator.api.slurmcluster_status import ClusterFacts, SlurmClusterStatus, cluster_status_of
from redbox_operator.api.slurmjob_status import Condition, Truth
from redbox_operator.object_cache import Known
from redbox_operator.slurmcluster.job_feed import RedboxLink, RedboxUnavailable, link_to, stale_since
from redbox_operator.slurmcluster.registry import Links
from redbox_operator.status_writer import Writer

log = structlog.get_logger(__name__)
WORKERS = 4
PAUSE_S = 10.0


@dataclass
class Entry:
    """One SlurmCluster: the object, and the link to its red-box, if one could be made."""

    cluster: SlurmCluster
    link: RedboxLink | None = None
    following: asyncio.Task[None] | None = None
    orphans: list[str] = field(default_factory=list)
    said: SlurmClusterStatus | None = None  # what we wrote last, whatever another has written since


class SlurmClusters:
    """Keeps one link for each SlurmCluster that there is."""

    def __init__(
        self,
        writer: Writer,
        account: ServiceAccountName,
        known: Known,
        links: Links,
        *,
        wake_uid: Callable[[str], None],
        wake_cluster: Callable[[str], None],
        limited: bool = False,
    ) -> None:
        """`limited` to some namespaces: others may be to others, and tell of the same SlurmClusters."""
        self.links = links
        self._limited = limited
        self._finalizer = cluster_finalizer(account.namespace, limited=limited)
        self._entries: dict[str, Entry] = {}
        self._queue: WorkQueue[str] = WorkQueue()
        self._writer = writer
        self._account = account
        self._known = known
        self._wake_uid = wake_uid
        self._wake_cluster = wake_cluster
        self._group: asyncio.TaskGroup | None = None
        self._knows_jobs = False

    async def run(self) -> None:
        """Follow them all until cancelled; a defect of one ends the process."""
        async with asyncio.TaskGroup() as self._group:
            for name in list(self._entries):
                self._connect(self._entries[name])
            await self._queue.run(self._handle, workers=WORKERS)

    # -- what watches and sweeps tell

    def seen(self, raw: Object) -> None:
        """A SlurmCluster came, or changed."""
        try:
            cluster = SlurmCluster.model_validate(raw)
        except ValidationError as error:
            log.warning("unreadable", slurmcluster=raw["metadata"]["name"], error=str(error))
            return
        entry = self._entries.get(cluster.name)
        before = entry.cluster if entry else None
        if entry is None:
            entry = self._entries[cluster.name] = Entry(cluster)
        entry.cluster = cluster
        if before is None or before.spec != cluster.spec or before.metadata["uid"] != cluster.metadata["uid"]:
            self._disconnect(entry)
            self._connect(entry)
            self._wake_cluster(cluster.name)
        elif entry.link is not None:
            entry.link.cluster = cluster
        if before is None or before.metadata.get("resourceVersion") != cluster.metadata.get(
            "resourceVersion"
        ):
            self._queue.add(cluster.name)

    def gone(self, name: str) -> None:
        """It is no more."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._disconnect(entry)
            self._wake_cluster(name)

    def names(self) -> frozenset[str]:
        """Of all that are known."""
        return frozenset(self._entries)

    def jobs_listed(self) -> None:
        """All SlurmJobs have been seen: before that, no SlurmCluster may be taken for one without any."""
        self._knows_jobs = True
        for name in self._entries:
            self._queue.add(name)

    def report_orphans(self, name: str, orphans: list[str]) -> None:
        """Jobs of this cluster whose SlurmJob is gone, by Slurm's ids."""
        if name in self._entries:
            self._entries[name].orphans = orphans

    # -- links

    def _connect(self, entry: Entry) -> None:
        if self._group is None or entry.link is not None:
            return
        try:
            entry.link = link_to(
                entry.cluster,
                self._writer.objects,
                self._account,
                changed=self._wake_uid,
                turned=self._turned,
            )
        except (ValueError, OSError) as error:  # an SSLError is an OSError
            self.links.troubles[entry.cluster.name] = f"spec.caBundle is no certificate in PEM: {error}"
            return
        self.links.by_name[entry.cluster.name] = entry.link
        entry.following = self._group.create_task(entry.link.run(), name=f"link to {entry.cluster.name}")

    def _disconnect(self, entry: Entry) -> None:
        self.links.by_name.pop(entry.cluster.name, None)
        self.links.troubles.pop(entry.cluster.name, None)
        if entry.following is not None:
            entry.following.cancel()
        entry.link = entry.following = None

    def _turned(self, link: RedboxLink) -> None:
        if self.links.get(link.cluster.name) is link:
            self._queue.add(link.cluster.name)
            if link.reachable:
                self._wake_cluster(link.cluster.name)

    # -- statuses

    async def _handle(self, name: str) -> None:
        try:
            await self._reconcile(name)
        except (ApiError, RedboxError, OSError, TimeoutError) as error:
            log.warning("reconcile", slurmcluster=name, error=str(error), again_in_s=PAUSE_S)
            self._queue.add_later(name, PAUSE_S)

    async def _reconcile(self, name: str) -> None:
        entry = self._entries.get(name)
        if entry is None:
            return
        metadata = entry.cluster.metadata
        where = ResourcePath("SlurmCluster", name, api_version=API_VERSION)
        if "deletionTimestamp" in metadata and not self._knows_jobs:
            return
        finalizers = list(metadata.get("finalizers", []))
        in_use_by = [] if "deletionTimestamp" not in metadata else self._unfinished(name)
        wanted = [one for one in finalizers if one not in {CLUSTER_FINALIZER, self._finalizer}]
        if "deletionTimestamp" not in metadata or in_use_by:
            wanted.append(self._finalizer)
        if sorted(wanted) != sorted(finalizers):
            changed = await self._writer.finalizers(where, wanted, version=str(metadata["resourceVersion"]))
            if changed is None or not wanted:
                return  # gone, or newer: the watch tells
            entry.cluster = entry.cluster.model_copy(update={"metadata": changed["metadata"]})
        await self._tell(entry, where, in_use_by)
        if in_use_by:
            self._queue.add_later(name, PAUSE_S)

    def _unfinished(self, name: str) -> list[str]:
        return [
            f"{one.place.namespace}/{one.place.name}"
            for one in self._known.of_cluster(name)
            if one.submits and not one.finished
        ]

    async def _gateways(self, cluster: SlurmCluster) -> list[str] | None:
        """The nodes that hold its jobs back, where they are asked to; None where we may not look."""
        if not cluster.spec.hold_back or not cluster.spec.gateways:
            return []
        labelled = {"labelSelector": f"{gateway_key(cluster.name)}=true"}
        found = self._writer.objects.list_metadata(ResourcePath("Node"), labelled)
        try:
            return [node.name async for node in found]
        except ApiRefused as refusal:
            if refusal.status != HTTPStatus.FORBIDDEN:
                raise
            return None

    def _trouble(self, entry: Entry) -> str | None:
        if entry.link is None:
            return self.links.troubles.get(entry.cluster.name, "it has not been asked yet")
        return None if entry.link.reachable else entry.link.trouble

    async def _tell(self, entry: Entry, where: ResourcePath, in_use_by: list[str]) -> None:
        link = entry.link
        told, partitions = await _asked(link) if link else (None, None)
        before = _read(entry.cluster)
        trouble = self._trouble(entry)
        after = cluster_status_of(
            ClusterFacts(
                cluster=entry.cluster,
                before=before,
                trouble=trouble,
                reason="Answers" if trouble is None else "Misconfigured" if link is None else "Unreachable",
                told=told,
                partitions=partitions,
                stale_since=stale_since(link.bookmark_message) if link else None,
                phases=[one.phase for one in self._known.of_cluster(where.name)],
                orphans=entry.orphans,
                in_use_by=in_use_by,
                gateways=await self._gateways(entry.cluster),
                now=now(),
            )
        )
        if link is not None and link.reachable is None and not before.conditions:
            return  # it is being asked right now
        if after == before or (self._limited and entry.said and _differ_in_times_only(entry.said, after)):
            return
        uid = str(entry.cluster.metadata["uid"])
        written = await self._writer.status(
            where, uid, after.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        if written is not None:
            entry.said = after
            entry.cluster = entry.cluster.model_copy(
                update={"metadata": written["metadata"], "status": written.get("status", {})}
            )
            await self._writer.tell(where, uid, _tellings(before, after))


async def _asked(link: RedboxLink) -> tuple[Cluster | None, list[str] | None]:
    """What red-box says of its cluster, where it answers and lets us know."""
    if not link.reachable:
        return None, None
    try:
        told = await link.describe()
        return told, [partition.name for partition in await link.partitions()]
    except (RedboxUnavailable, RedboxError) as error:
        log.info("redbox does not describe itself", slurmcluster=link.cluster.name, error=str(error))
        return None, None


def _differ_in_times_only(said: SlurmClusterStatus, after: SlurmClusterStatus) -> bool:
    times = {"conditions": {"__all__": {"last_transition_time"}}}
    return said.model_dump(exclude=times) == after.model_dump(exclude=times)


def _read(cluster: SlurmCluster) -> SlurmClusterStatus:
    try:
        return SlurmClusterStatus.model_validate(cluster.status)
    except ValidationError:
        return SlurmClusterStatus()


def _tellings(before: SlurmClusterStatus, after: SlurmClusterStatus) -> list[Telling]:
    known = {one.type: (one.status, one.reason) for one in before.conditions}
    return [
        Telling(_severity(one), one.reason, one.message or f"{one.type}: {one.reason}", one)
        for one in after.conditions
        if known.get(one.type) != (one.status, one.reason)
    ]


def _severity(condition: Condition) -> str:
    good = condition.type in {"Reachable", "Current", "HoldsBack"}
    return NORMAL if (condition.status is Truth.TRUE) is good else WARNING
