"""Reconciles SlurmClusters and SlurmEndpoints: a link to the red-box of each, its finalizer and its status.

One link serves all SlurmJobs of its cluster. While a red-box is away, only the status of its SlurmCluster
reports that: no status of a SlurmJob is written. A SlurmEndpoint has no finalizer, because it goes with its
namespace; its audience is in its status and in a ConfigMap for its red-box (`endpoint_audience`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass, field

import structlog
from pydantic import ValidationError

from redbox_api.errors import RedboxError
from redbox_clusters.redbox_token import ServiceAccountName
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_clusters.slurm_endpoint import SlurmEndpoint, is_endpoint, namespace_of, read_cluster
from redbox_kube.api.objects import ApiError, Object
from redbox_kube.runtime.paces import Pace, PacedCalls
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.constants import CLUSTER_FINALIZER, cluster_finalizer
from redbox_operator.api.slurmcluster_status import ClusterUsers
from redbox_operator.object_cache import ObjectCache, is_higher
from redbox_operator.slurmcluster.ca_bundle import COPIED_S, WAITS_S, copy_ca_bundle
from redbox_operator.slurmcluster.cluster_status import ClusterStatusWriter, path_of_cluster
from redbox_operator.slurmcluster.cluster_users import may_still_submit, users_of
from redbox_operator.slurmcluster.endpoint_addresses import EndpointAddresses
from redbox_operator.slurmcluster.endpoint_audience import publish_audience
from redbox_operator.slurmcluster.endpoint_places import EndpointPlaces
from redbox_operator.slurmcluster.job_feed import RedboxLink, link_to
from redbox_operator.slurmcluster.partition_watch import STATES_EVERY_S
from redbox_operator.slurmcluster.registry import NOT_CONNECTED, ClusterEntry, RedboxLinks
from redbox_shared.keyed_semaphores import FairSlots

log = structlog.get_logger(__name__)
ENDPOINTS_AT_ONCE, OF_A_NAMESPACE = 8, 2
"""So many are looked at: users choose what answers there, or hangs. SlurmClusters wait for none of them."""
PAUSE_S = 10.0
MOST_ENDPOINTS = 256
RETURNS_AT_ONCE, RETURN_EVERY_S = 5, 10.0
"""Of one SlurmEndpoint; a return of its red-box has its SlurmJobs reconciled."""


@dataclass(frozen=True, slots=True)
class EndpointRules:
    """What an installation allows the SlurmEndpoints of all namespaces."""

    most: int = MOST_ENDPOINTS
    addresses: EndpointAddresses = field(default_factory=EndpointAddresses)


class SlurmClusters:
    """Keeps one link for each SlurmCluster and SlurmEndpoint, by their keys."""

    def __init__(
        self,
        writer: StatusWriter,
        account: ServiceAccountName,
        cache: ObjectCache,
        links: RedboxLinks,
        *,
        wake_uid: Callable[[str], None],
        wake_cluster: Callable[[str], None],
        limited: bool = False,
        endpoints: EndpointRules | None = None,
    ) -> None:
        """`limited` to some namespaces: operators of other namespaces write the same SlurmClusters."""
        self.links = links
        self._limited = limited
        self._finalizer = cluster_finalizer(account.namespace, limited=limited)
        self._entries: dict[str, ClusterEntry] = {}
        self._queue: WorkQueue[str] = WorkQueue()
        self._writer = writer
        self._account = account
        self._cache = cache
        self._wake_uid = wake_uid
        self._wake_cluster = wake_cluster
        self._group: asyncio.TaskGroup | None = None
        self._jobs_listed = False
        self._rules = endpoints or EndpointRules()
        self._places = EndpointPlaces(self._rules.most)
        self._slots = FairSlots(ENDPOINTS_AT_ONCE, OF_A_NAMESPACE)
        self._statuses = ClusterStatusWriter(
            writer, cache, links, limited=limited, write_later=self._queue.add_later
        )
        self._endpoint_returned = PacedCalls(wake_cluster, Pace(RETURNS_AT_ONCE, RETURN_EVERY_S))

    async def run(self) -> None:
        """Follow all red-boxes until cancelled; a defect in the link of a SlurmCluster ends the process."""
        async with asyncio.TaskGroup() as self._group:
            for name in list(self._entries):
                self._connect(self._entries[name])
            await self._queue.run(self._handle, workers=None)

    # -- events of the watch and of the resync

    def updated(self, raw: Object) -> None:
        """One was created or changed."""
        try:
            cluster = read_cluster(raw)
        except ValidationError as error:
            log.warning("unreadable", slurmcluster=raw["metadata"]["name"], error=str(error))
            return
        key = cluster.key
        entry = self._entries.get(key)
        before = entry.cluster if entry else None
        if entry is None:
            entry = self._entries[key] = ClusterEntry(cluster)
        entry.cluster = cluster
        self._find_places(key, cluster)
        if before is None or before.spec != cluster.spec or before.uid != cluster.uid:
            self._disconnect(entry)
            self._connect(entry)
            self._wake_cluster(key)
        elif entry.link is not None:
            entry.link.cluster = cluster
        if before is None or before.metadata.get("resourceVersion") != cluster.metadata.get(
            "resourceVersion"
        ):
            self._queue.add(key)

    def listed(self, key: str, raw: Object) -> None:
        """A list has shown it: perhaps in an older version than the watch has shown meanwhile."""
        entry = self._entries.get(key)
        cached = str(entry.cluster.metadata.get("resourceVersion", "")) if entry else None
        version = str(raw["metadata"]["resourceVersion"])
        if cached is None or version == cached or is_higher(version, cached):
            self.updated(raw)

    def deleted(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._disconnect(entry)
            self._wake_cluster(key)
            self._pass_places(self._places.remove(key, entry.cluster.namespace))

    def _find_places(self, key: str, cluster: SlurmCluster) -> None:
        if isinstance(cluster, SlurmEndpoint):
            created = str(cluster.metadata.get("creationTimestamp", ""))
            self._pass_places(self._places.add(key, cluster.namespace, created, cluster.uid))

    def _pass_places(self, keys: Collection[str]) -> None:
        """These SlurmEndpoints have a place now, or another one has it.

        Until it is looked at each is there, and without a link: of one that is gone, jobs are abandoned.
        """
        for key in keys:
            if (entry := self._entries.get(key)) is not None:
                self._disconnect(entry)
                self.links.troubles[key] = NOT_CONNECTED
                self._queue.add(key)
                self._wake_cluster(key)

    def names(self) -> frozenset[str]:
        return frozenset(self._entries)

    def jobs_listed(self) -> None:
        """All SlurmJobs are listed: only now a SlurmCluster without cached SlurmJobs has none."""
        self._jobs_listed = True
        for name in self._entries:
            self._queue.add(name)

    def report_orphans(self, name: str, orphans: list[str]) -> None:
        """Record the jobs of this cluster whose SlurmJob is gone, by Slurm's ids."""
        if name in self._entries:
            self._entries[name].orphans = orphans

    # -- links

    def _connect(self, entry: ClusterEntry) -> None:
        if self._group is None or entry.link is not None:
            return
        key = entry.cluster.key
        if (namespace := entry.cluster.namespace) and (why := self._places.refusal(key, namespace)):
            self.links.troubles[key] = why
            spec = entry.cluster.spec.model_copy(update={"ca_bundle": b""})  # there may be thousands
            entry.cluster = entry.cluster.model_copy(update={"spec": spec})
            return
        if entry.cluster.spec.waits_for_ca:
            self.links.troubles.setdefault(key, NOT_CONNECTED)
            return
        try:
            entry.link = link_to(
                entry.cluster,
                self._writer.objects,
                self._account,
                changed=self._wake_uid,
                turned=self._reachability_changed,
                namespace_of=self._namespace_of,
                partitions_changed=self._partitions_changed,
                addresses=self._rules.addresses,
                lag=entry.lag,
            )
        except (ValueError, OSError) as error:  # an SSLError is an OSError
            self.links.troubles[key] = f"spec.caBundle is not a PEM certificate: {error}"
            return
        self.links.troubles.pop(key, None)
        self.links.by_name[key] = entry.link
        entry.task = self._group.create_task(self._follow(entry, entry.link), name=f"link to {key}")

    async def _follow(self, entry: ClusterEntry, link: RedboxLink) -> None:
        """Until cancelled. Users of a namespace choose what a SlurmEndpoint answers: it must not end us."""
        try:
            await link.run()
        except Exception:
            key = link.cluster.key
            if not link.cluster.namespace:
                raise
            log.exception("defect in a link", slurmendpoint=key, again_in_s=PAUSE_S)
            if entry.link is link:
                entry.task = None
                self._disconnect(entry)
                self.links.troubles[key] = "its red-box gives answers that the operator cannot process"
                self._queue.add_later(key, PAUSE_S)  # which connects it again

    def _namespace_of(self, uid: str) -> str | None:
        ref = self._cache.ref_of(uid)
        return ref.namespace if ref else None

    def _disconnect(self, entry: ClusterEntry) -> None:
        self.links.by_name.pop(entry.cluster.key, None)
        self.links.troubles.pop(entry.cluster.key, None)
        if entry.task is not None:
            entry.task.cancel()
        entry.link = entry.task = None

    def _reachability_changed(self, link: RedboxLink) -> None:
        key = link.cluster.key
        if self.links.get(key) is link:
            self._queue.add(key)
            if link.reachable:
                (self._endpoint_returned if link.cluster.namespace else self._wake_cluster)(key)

    def _partitions_changed(self, name: str) -> None:
        self._queue.add_later(name, STATES_EVERY_S)

    # -- the work of the queue

    async def _handle(self, name: str) -> None:
        slot = self._slots.of(namespace_of(name)) if is_endpoint(name) else nullcontext()
        try:
            async with slot:
                await self._reconcile(name)
        except (ApiError, RedboxError, OSError, TimeoutError) as error:
            log.warning("reconcile", slurmcluster=name, error=str(error), again_in_s=PAUSE_S)
            self._queue.add_later(name, PAUSE_S)
        except Exception:
            # A tenant chooses what answers at a SlurmEndpoint: a defect that it finds stops no other.
            log.exception("defect", slurmcluster=name, again_in_s=PAUSE_S)
            self._queue.add_later(name, PAUSE_S)

    async def _reconcile(self, name: str) -> None:
        entry = self._entries.get(name)
        if entry is None:
            return
        if isinstance(entry.cluster, SlurmEndpoint):
            await self._reconcile_endpoint(entry, entry.cluster)
            return
        being_deleted, finalizers = entry.cluster.being_deleted, entry.cluster.finalizers
        if being_deleted and not self._jobs_listed:
            return
        in_use_by = await users_of(entry.cluster, self._writer.objects, self._cache, limited=self._limited)
        is_kept = bool(in_use_by) or may_still_submit(entry.cluster)
        wanted = [item for item in finalizers if item not in {CLUSTER_FINALIZER, self._finalizer}]
        if not being_deleted or is_kept:
            wanted.append(self._finalizer)
        if sorted(wanted) != sorted(finalizers):
            where, version = path_of_cluster(entry.cluster), str(entry.cluster.metadata["resourceVersion"])
            changed = await self._writer.finalizers(where, wanted, version=version)
            if changed is None or not wanted:
                return  # gone, or changed: the watch shows it
            entry.cluster = entry.cluster.model_copy(update={"metadata": changed["metadata"]})
        await self._copy_ca_bundle(entry)
        await self._statuses.write(entry, in_use_by)
        if is_kept:
            self._queue.add_later(name, PAUSE_S)
        if entry.link is not None and entry.link.partition_watch.use_due_in_s:
            self._queue.add_later(name, entry.link.partition_watch.use_due_in_s)

    async def _copy_ca_bundle(self, entry: ClusterEntry) -> None:
        """The watch shows what it has written, which connects the SlurmCluster."""
        if (source := entry.cluster.spec.ca_bundle_from) is None:
            return
        problem = await copy_ca_bundle(self._writer, entry.cluster, source)
        if problem and entry.cluster.spec.waits_for_ca:
            self.links.troubles[entry.cluster.key] = problem
        self._queue.add_later(entry.cluster.key, WAITS_S if entry.cluster.spec.waits_for_ca else COPIED_S)

    async def _reconcile_endpoint(self, entry: ClusterEntry, endpoint: SlurmEndpoint) -> None:
        if endpoint.being_deleted:
            return  # nothing of ours keeps it
        if problem := await publish_audience(self._writer, endpoint):
            self._disconnect(entry)
            self.links.troubles[endpoint.key] = problem
        elif entry.link is None:
            raw = await self._writer.objects.get(path_of_cluster(endpoint))
            if raw is None or self._entries.get(endpoint.key) is not entry:
                return  # gone
            entry.cluster = read_cluster(raw)  # of one that waited for its place not all was kept
            self._connect(entry)
            if self.links.get(endpoint.key) is not None:
                self._wake_cluster(endpoint.key)
        await self._statuses.write(entry, ClusterUsers())
        if entry.link is not None and entry.link.partition_watch.use_due_in_s:
            self._queue.add_later(endpoint.key, entry.link.partition_watch.use_due_in_s)
