"""The truth, once a minute: what there is, compared with what the watches have told.

Lists bring metadata only, page by page: an object whose version is known costs a comparison and nothing else.
What differs is read whole. kopf lists anew after a 410 without telling what went meanwhile: this tells. An
object that cannot be read is left out, and said: what one tenant wrote must not end what serves all.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

import structlog

from redbox_api.errors import NoSuchJob, RedboxError
from redbox_api.feed import RowKey
from redbox_api.models import FINAL_PHASES
from redbox_kube.api.metadata_list import ObjectMetadata
from redbox_kube.api.objects import ApiError, ApiRefused, ApiUnreadable, ObjectClient, ResourcePath
from redbox_kube.names import API_VERSION, LABEL_JOB_UID
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_kube.slurm_cluster import OrphanPolicy
from redbox_operator.api.decode import read_job
from redbox_operator.api.slurmjob import Place, Resource
from redbox_operator.companion.plan import companion_of
from redbox_operator.metrics import Metrics
from redbox_operator.object_cache import PodName
from redbox_operator.slurmcluster.job_feed import RedboxUnavailable, Row
from redbox_operator.slurmcluster.reconciler import SlurmClusters
from redbox_operator.slurmjob.optional_kinds import if_served
from redbox_operator.slurmjob.reconciler import Reconciler
from redbox_operator.status_writer import where_is

log = structlog.get_logger(__name__)
EVERY_S = 60.0
SOONER_S = 1.0
TELLING_S = 5.0
LONGEST_WHY = 200
KeyT = TypeVar("KeyT", bound=Hashable)
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
COMPANIONS = {"labelSelector": LABEL_JOB_UID}


@dataclass(frozen=True)
class Scope:
    """Which kinds are looked at, and in which namespaces; none named: in all."""

    resources: Sequence[Resource]
    namespaces: Sequence[str] = ()

    def places(self, kind: str, api_version: str) -> list[ResourcePath]:
        return [ResourcePath(kind, "", namespace, api_version) for namespace in self.namespaces or ("",)]


class Sweep:
    """Compares everything, again and again."""

    def __init__(
        self,
        objects: ObjectClient,
        scope: Scope,
        reconciler: Reconciler,
        clusters: SlurmClusters,
        metrics: Metrics,
    ) -> None:
        self.done_once = False
        self._objects = objects
        self._scope = scope
        self._reconciler = reconciler
        self._clusters = clusters
        self._metrics = metrics
        self._due = asyncio.Event()
        self._began: float | None = None
        self._unreadable: set[str] = set()
        self._read_in_vain: set[str] = set()  # by this sweep
        self._troubles = GroupedWarnings("objects not read")
        self._closed: set[str] = set()  # namespaces that this sweep was not let into
        self._closings = GroupedWarnings("namespaces not looked into")

    def idle_s(self) -> float:
        """How long ago the last one began."""
        return 0.0 if self._began is None else asyncio.get_running_loop().time() - self._began

    def ask_for_one(self) -> None:
        """Something may have been missed: do not wait for the minute to pass."""
        self._due.set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            loop = asyncio.get_running_loop()
            began = self._began = loop.time()
            try:
                await self._sweep()
                self.done_once = True
            except (ApiError, TimeoutError) as error:
                log.warning("sweep", error=str(error))
            self._metrics.sweep_seconds.observe(loop.time() - began)
            try:
                async with asyncio.timeout(EVERY_S):
                    await self._due.wait()
                await asyncio.sleep(SOONER_S)  # whoever asks once may ask a thousand times
            except TimeoutError:
                pass
            self._due.clear()

    async def _sweep(self) -> None:
        self._read_in_vain.clear()
        before, self._closed = self._closed, set()
        await self._compare()
        for namespace in before - self._closed:
            self._closings.mended(namespace)
        for name in self._unreadable - self._read_in_vain:  # mended, or gone: what is not is read each time
            self._troubles.mended(name)
        self._unreadable &= self._read_in_vain

    async def _compare(self) -> None:
        await self._of_clusters()
        living = {
            name: dict(link.active_rows())
            for name, link in self._clusters.links.by_name.items()
            if link.synced
        }
        uids: set[str] = set()
        for resource in self._scope.resources:
            uids |= await self._of_jobs(resource)
        await self._of_companions()
        for name, rows in living.items():
            await self._of_orphans(name, rows, uids)
        self._forget_ended(uids)
        self._clusters.jobs_listed()

    async def _of_clusters(self) -> None:
        found = set()
        async for raw in self._objects.list_all(ResourcePath("SlurmCluster", api_version=API_VERSION)):
            name = raw["metadata"]["name"]
            found.add(name)
            with self._apart(f"SlurmCluster/{name}"):
                self._clusters.seen(raw)
        for name in self._clusters.names() - found:
            self._clusters.gone(name)
        self._reconciler.clusters_listed()

    async def _of_jobs(self, resource: Resource) -> set[str]:
        known = self._reconciler.known.jobs
        before = {place for place in known if place.resource == resource}
        found: set[Place] = set()
        uids: set[str] = set()
        untold: dict[Place, str] = {}
        for where in self._scope.places(resource.kind, resource.api_version):
            async for item in self._let_in(where, if_served(where, self._objects.list_metadata(where))):
                place = Place(resource, item.namespace, item.name)
                found.add(place)
                uids.add(item.uid)
                if self._differs(place, item.resource_version):
                    untold[place] = item.resource_version
        for place in await self._still(untold, self._differs):
            with self._apart(f"{resource.kind}/{place.namespace}/{place.name}"):
                await self._read_job(place)
        for place in (one for one in before - found if one.namespace not in self._closed):
            self._missed("SlurmJob")
            self._reconciler.job_gone(place)
        return uids

    def _differs(self, place: Place, version: str) -> bool:
        there = self._reconciler.known.jobs.get(place)
        return there is None or there.version != version

    @staticmethod
    async def _still(untold: dict[KeyT, str], differs: Callable[[KeyT, str], bool]) -> list[KeyT]:
        """Those that the watch has not told of either, given time: it may be listing all just now."""
        left = list(untold)
        while left:
            await asyncio.sleep(TELLING_S)
            now = [key for key in left if differs(key, untold[key])]
            if len(now) == len(left):
                break
            left = now
        return left

    async def _let_in(
        self, where: ResourcePath, items: AsyncIterator[ObjectMetadata]
    ) -> AsyncIterator[ObjectMetadata]:
        """Whoever rules one of our namespaces can take our rights there away: others are looked at, too."""
        try:
            async for item in items:
                yield item
        except ApiRefused as refusal:
            if refusal.status != HTTPStatus.FORBIDDEN or not where.namespace:
                raise
            self._closed.add(where.namespace)
            self._closings.failed(where.namespace, str(refusal)[:LONGEST_WHY])

    async def _read_job(self, place: Place) -> None:
        raw = await self._objects.get(where_is(place))
        job = read_job(place.resource, raw) if raw else None
        if job is not None and self._reconciler.known.is_news(job):
            self._missed("SlurmJob")
            self._reconciler.job_seen(job)

    async def _of_companions(self) -> None:
        known = self._reconciler.known.companions
        before = dict(known)
        found: set[PodName] = set()
        untold: dict[PodName, str] = {}
        for where in self._scope.places("Pod", "v1"):
            async for item in self._let_in(where, self._objects.list_metadata(where, COMPANIONS)):
                name = (item.namespace, item.name)
                found.add(name)
                if self._pod_differs(name, item.resource_version):
                    untold[name] = item.resource_version
        for name in await self._still(untold, self._pod_differs):
            with self._apart(f"Pod/{name[0]}/{name[1]}"):
                await self._read_pod(name)
        for name, pod in before.items():
            if name not in found and pod.namespace not in self._closed and known.get(name) is pod:
                self._missed("Pod")
                self._reconciler.companion_gone(pod)

    async def _read_pod(self, name: PodName) -> None:
        raw = await self._objects.get(ResourcePath("Pod", name[1], name[0]))
        if raw is not None:
            self._reconciler.companion_seen(companion_of(raw))

    def _pod_differs(self, name: PodName, version: str) -> bool:
        there = self._reconciler.known.companions.get(name)
        return there is None or there.version != version

    @contextmanager
    def _apart(self, name: str) -> Iterator[None]:
        """Whatever is wrong with this one object, the others are looked at."""
        try:
            yield
        except ApiUnreadable as error:
            self._left_out(name, str(error))
        except (ApiError, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 (its author may have written anything)
            self._metrics.errors.labels("defect").inc()
            self._left_out(name, repr(error))

    def _left_out(self, name: str, why: str) -> None:
        self._unreadable.add(name)
        self._read_in_vain.add(name)
        self._troubles.failed(name, why[:LONGEST_WHY])

    def _missed(self, kind: str) -> None:
        self._metrics.missed.labels(kind).inc()

    async def _of_orphans(self, name: str, rows: Mapping[RowKey, Row], uids: set[str]) -> None:
        """Rows that were there before the SlurmJobs were listed, and belong to none of them."""
        orphans = {
            key: row
            for key, row in rows.items()
            if _is_of_a_slurmjob(key, row) and key.key not in uids and self._in_scope(key)
        }
        link = self._clusters.links.get(name)
        if link is None:
            return
        self._clusters.report_orphans(name, [row.job_id or key.key for key, row in orphans.items()])
        if link.cluster.spec.orphan_policy is not OrphanPolicy.CANCEL or self._scope.namespaces:
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

    def _forget_ended(self, uids: set[str]) -> None:
        """Rows of jobs that have ended and belong to no SlurmJob: nobody will ask for them."""
        for link in self._clusters.links.by_name.values():
            ended = [key for key, row in link.rows.items() if row.phase in FINAL_PHASES]
            for key in ended:
                if key.key not in uids and key.namespace not in self._closed:
                    link.forget(key)

    def _in_scope(self, key: RowKey) -> bool:
        ours = self._scope.namespaces
        return not ours or (key.namespace in ours and key.namespace not in self._closed)


def _is_of_a_slurmjob(key: RowKey, row: Row) -> bool:
    """Others may call red-box too, with keys of their own: theirs are no SlurmJob's uid with a digest."""
    return UID.fullmatch(key.key) is not None and row.has_digest
