"""The resync: once a minute, all objects at the API server are compared with the object cache.

Lists bring metadata only, page by page: an object in its cached version costs one comparison, one in another
version is read whole. kopf lists again after a 410 without reporting objects that were deleted meanwhile: the
resync finds these. An object that cannot be read is skipped and logged: one tenant's object must not stop the
operator for all.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import TypeVar

import structlog

from redbox_api.errors import NoSuchJob, RedboxError
from redbox_api.feed import RowKey
from redbox_api.models import FINAL_PHASES
from redbox_clusters.names import LABEL_JOB_UID
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS, OrphanPolicy
from redbox_clusters.slurm_endpoint import SLURM_ENDPOINTS, endpoint_key
from redbox_kube.api import kinds
from redbox_kube.api.kinds import Kind
from redbox_kube.api.metadata_list import ObjectMetadata
from redbox_kube.api.objects import ApiError, ApiRefused, ApiUnreadable, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_operator.api.decode import RESOURCES, read_job
from redbox_operator.api.optional_kinds import if_served
from redbox_operator.api.slurmjob import SlurmJobRef, path_of
from redbox_operator.companion_pods.plan import CompanionPod, companion_of
from redbox_operator.metrics import OperatorMetrics
from redbox_operator.object_cache import PackedJob, PodName
from redbox_operator.slurmcluster.job_feed import RedboxUnavailable, Row
from redbox_operator.slurmcluster.reconciler import SlurmClusters
from redbox_operator.slurmjob.reconciler import Reconciler

log = structlog.get_logger(__name__)
EVERY_S = 60.0
REQUEST_DELAY_S = 1.0
WATCH_GRACE_S = 5.0
MAX_ERROR_LENGTH = 200
KeyT = TypeVar("KeyT", bound=Hashable)
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
COMPANIONS = {"labelSelector": LABEL_JOB_UID}


class Resync:
    """Runs one comparison a minute, and one soon after it is requested."""

    def __init__(
        self,
        objects: ObjectClient,
        reconciler: Reconciler,
        clusters: SlurmClusters,
        metrics: OperatorMetrics,
        namespaces: Sequence[str] = (),
    ) -> None:
        """`namespaces` are those that the operator serves; empty: all."""
        self.done_once = False
        self._objects = objects
        self._reconciler = reconciler
        self._clusters = clusters
        self._metrics = metrics
        self._namespaces = namespaces
        self._requested = asyncio.Event()
        self._began: float | None = None
        self._unreadable: set[str] = set()  # found by the current resync
        self._unreadable_warnings = GroupedWarnings("objects not read")
        self._forbidden: set[str] = set()  # namespaces that the current resync may not list
        self._forbidden_warnings = GroupedWarnings("namespaces not listed")

    def idle_s(self) -> float:
        """Seconds since the last one began."""
        return 0.0 if self._began is None else asyncio.get_running_loop().time() - self._began

    def request(self) -> None:
        """Run soon: a watch may have missed something."""
        self._requested.set()

    async def run(self) -> None:
        """Resync until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = self._began = loop.time()
            try:
                await self.resync()
                self.done_once = True
            except (ApiError, TimeoutError) as error:
                log.warning("resync failed", error=str(error))
            self._metrics.resync_seconds.observe(loop.time() - began)
            try:
                async with asyncio.timeout(EVERY_S):
                    await self._requested.wait()
                await asyncio.sleep(REQUEST_DELAY_S)  # a list of kopf's requests one for each of its objects
            except TimeoutError:
                pass
            self._requested.clear()

    async def resync(self) -> None:
        """Compare everything once, and report objects and namespaces that can be read again."""
        self._unreadable, self._forbidden = set(), set()
        await self._compare()
        for namespace in self._forbidden_warnings.failing.keys() - self._forbidden:
            self._forbidden_warnings.recovered(namespace)
        for name in self._unreadable_warnings.failing.keys() - self._unreadable:  # readable again, or gone
            self._unreadable_warnings.recovered(name)

    async def _compare(self) -> None:
        await self.list_clusters()
        # Rows from before the SlurmJobs are listed: a job that is submitted meanwhile is not an orphan.
        links = self._clusters.links.by_name.items()
        rows = {name: dict(link.active_rows()) for name, link in links if link.synced}
        uids: set[str] = set()
        for resource in RESOURCES:
            uids |= await self._compare_jobs(resource)
        await self._compare_companions()
        for name, living in rows.items():
            await self._handle_orphans(name, living, uids)
        self._forget_ended_rows(uids)
        self._clusters.jobs_listed()

    async def list_clusters(self) -> None:
        """Show all SlurmClusters and SlurmEndpoints to those that work with them."""
        before = self._clusters.names()  # one that is created during the list may be missing in it
        found = await self._list_endpoints()
        async for raw in self._objects.list_all(ResourcePath(SLURM_CLUSTERS)):
            name = raw["metadata"]["name"]
            found.add(name)
            with self._isolated(f"SlurmCluster/{name}"):
                self._clusters.listed(name, raw)
        for name in before - found:
            self._clusters.deleted(name)
        self._reconciler.clusters_listed()

    async def _list_endpoints(self) -> set[str]:
        """Returns the keys of all; of a namespace that may not be listed those that are there already."""
        found, unlisted = set(), set()
        for namespace in self._namespaces or ("",):
            where = ResourcePath(SLURM_ENDPOINTS, "", namespace)
            try:
                async for raw in self._objects.list_all(where):
                    key = endpoint_key(raw["metadata"]["namespace"], raw["metadata"]["name"])
                    found.add(key)
                    with self._isolated(f"SlurmEndpoint/{key}"):
                        self._clusters.listed(key, raw)
            except ApiRefused as refusal:
                if refusal.status != HTTPStatus.FORBIDDEN or not namespace:
                    raise
                found |= {
                    key for key in self._clusters.names() if key.startswith(endpoint_key(namespace, ""))
                }
                unlisted.add(namespace)
        self._clusters.links.unlisted = frozenset(unlisted)
        return found

    # -- SlurmJobs and companions

    async def _compare_jobs(self, resource: Kind) -> set[str]:
        """Returns the uids of all that are listed."""
        cached = self._reconciler.cache.jobs
        before = {ref: job.uid for ref, job in cached.items() if ref.resource == resource}
        listed: dict[SlurmJobRef, str] = {}
        uids: set[str] = set()
        async for item in self._listed(resource):
            listed[SlurmJobRef(resource, item.namespace, item.name)] = item.resource_version
            uids.add(item.uid)
        for ref in await self._outdated(listed, cached):
            with self._isolated(f"{resource}/{ref.full_name}"):
                await self._read_job(ref)
        for ref in before.keys() - listed.keys():
            if ref.namespace not in self._forbidden:
                self._metrics.missed.labels("SlurmJob").inc()
                self._reconciler.job_deleted(ref, before[ref])
        return uids

    async def _read_job(self, ref: SlurmJobRef) -> None:
        raw = await self._objects.get(path_of(ref))
        if raw and self._reconciler.cache.is_newer(ref, raw["metadata"]["resourceVersion"]):
            self._metrics.missed.labels("SlurmJob").inc()
            self._reconciler.job_updated(read_job(ref.resource, raw))

    async def _compare_companions(self) -> None:
        cached = self._reconciler.cache.companions
        before = dict(cached)
        listed: dict[PodName, str] = {}
        async for item in self._listed(kinds.POD, COMPANIONS):
            listed[item.namespace, item.name] = item.resource_version
        for namespace, name in await self._outdated(listed, cached):
            with self._isolated(f"Pod/{namespace}/{name}"):
                raw = await self._objects.get(ResourcePath(kinds.POD, name, namespace))
                if raw is not None:
                    self._reconciler.companion_updated(companion_of(raw))
        for key, pod in before.items():
            if key not in listed and pod.namespace not in self._forbidden and cached.get(key) is pod:
                self._metrics.missed.labels("Pod").inc()
                self._reconciler.companion_deleted(pod)

    @staticmethod
    async def _outdated(
        listed: dict[KeyT, str], cached: Mapping[KeyT, PackedJob | CompanionPod]
    ) -> list[KeyT]:
        """Keys whose cached version is still another one after a grace: the watch may be listing just now."""

        def outdated(keys: Iterable[KeyT]) -> list[KeyT]:
            return [key for key in keys if key not in cached or cached[key].version != listed[key]]

        left = outdated(listed)
        while left:
            await asyncio.sleep(WATCH_GRACE_S)
            still = outdated(left)
            if len(still) == len(left):
                break
            left = still
        return left

    async def _listed(
        self, kind: Kind, selection: Mapping[str, str] | None = None
    ) -> AsyncIterator[ObjectMetadata]:
        """Of all our namespaces: each one's own administrator can revoke our rights there, for it alone."""
        for namespace in self._namespaces or ("",):
            where = ResourcePath(kind, "", namespace)
            try:
                async for item in if_served(where, self._objects.list_metadata(where, selection)):
                    yield item
            except ApiRefused as refusal:
                if refusal.status != HTTPStatus.FORBIDDEN or not namespace:
                    raise
                self._forbidden.add(namespace)
                self._forbidden_warnings.failed(namespace, str(refusal)[:MAX_ERROR_LENGTH])

    @contextmanager
    def _isolated(self, name: str) -> Iterator[None]:
        """A defect in reading this object must not keep the others from being read."""
        try:
            yield
        except ApiUnreadable as error:
            self._skip(name, str(error))
        except (ApiError, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 (its author may have written anything)
            self._metrics.errors.labels("defect").inc()
            self._skip(name, repr(error))

    def _skip(self, name: str, error: str) -> None:
        self._unreadable.add(name)
        self._unreadable_warnings.failed(name, error[:MAX_ERROR_LENGTH])

    # -- jobs at red-box without a SlurmJob

    async def _handle_orphans(self, name: str, rows: Mapping[RowKey, Row], uids: set[str]) -> None:
        """Report, or cancel, jobs whose SlurmJob is gone."""
        orphans = {
            key: row
            for key, row in rows.items()
            if _is_of_a_slurmjob(key, row) and key.key not in uids and self._in_scope(key)
        }
        link = self._clusters.links.get(name)
        if link is None:
            return
        self._clusters.report_orphans(name, [row.job_id or key.key for key, row in orphans.items()])
        if link.cluster.spec.orphan_policy is not OrphanPolicy.CANCEL or self._namespaces:
            return
        for key, row in orphans.items():
            try:
                await link.cancel(key, all_attempts=True)
                log.warning("orphan cancelled", slurmcluster=name, job_id=row.job_id, key=key.key)
            except NoSuchJob:
                continue
            except RedboxUnavailable as away:
                log.warning("orphans not cancelled", slurmcluster=name, error=str(away))
                return
            except RedboxError as error:
                log.warning("orphan not cancelled", slurmcluster=name, job_id=row.job_id, error=str(error))

    def _forget_ended_rows(self, uids: set[str]) -> None:
        """Rows of ended jobs without a SlurmJob are never read again."""
        for link in self._clusters.links.by_name.values():
            ended = {key for key, row in link.rows.items() if row.phase in FINAL_PHASES}
            for key in ended | (link.lag.rows() - link.rows.keys()):
                if key.key not in uids and key.namespace not in self._forbidden:
                    link.forget(key)

    def _in_scope(self, key: RowKey) -> bool:
        served = not self._namespaces or key.namespace in self._namespaces
        return served and key.namespace not in self._forbidden


def _is_of_a_slurmjob(key: RowKey, row: Row) -> bool:
    """Other clients of red-box use keys of their own, which are not the uid of a SlurmJob with a digest."""
    return UID.fullmatch(key.key) is not None and row.has_digest
