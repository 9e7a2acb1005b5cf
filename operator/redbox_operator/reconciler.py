"""Brings each SlurmJob to where it should be: companion made, status told, job cancelled in the end.

Watches are hints: whatever happens anywhere, the key of the SlurmJob that it concerns is queued, and
`reconcile` looks at the whole truth again. One key is never handled twice at once, none waits for others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import structlog

from redbox_api.errors import NoSuchJob, RedboxError
from redbox_api.models import FINAL_PHASES, Job, OwnerRef
from redbox_kube.names import LABEL_JOB_UID
from redbox_kube.objects import ApiRefused, Objects, Where, slurm_job
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_operator.building import FIRST_ATTEMPT, Object, companion_pod, config_map
from redbox_operator.jobs_at_redbox import RedboxWatch
from redbox_operator.kinds import SlurmJob
from redbox_operator.known_names import FINALIZER, pod_name
from redbox_operator.placement import cluster_of
from redbox_operator.status import refusal_of, status_of

log = structlog.get_logger(__name__)
WORKERS = 16
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0

Place = tuple[str, str]  # namespace, name


@dataclass
class Known:
    """What the watches have shown: SlurmJobs and companions, by place and by uid."""

    jobs: dict[Place, SlurmJob] = field(default_factory=dict)
    companions: dict[str, Object] = field(default_factory=dict)  # by the SlurmJob's uid
    places: dict[str, Place] = field(default_factory=dict)  # by the SlurmJob's uid


class Reconciler:
    """Owns the queue and those who work it off."""

    def __init__(self, objects: Objects, watches: Mapping[str, RedboxWatch], image: str) -> None:
        self._objects = objects
        self._watches = watches
        self._image = image
        self._queue: asyncio.Queue[Place] = asyncio.Queue()
        self._queued: set[Place] = set()
        self._working: set[Place] = set()
        self._failures: dict[Place, int] = {}
        self.known = Known()

    def wake(self, place: Place) -> None:
        """Something about this SlurmJob has changed."""
        if place not in self._queued:
            self._queued.add(place)
            self._queue.put_nowait(place)

    def wake_uid(self, uid: str) -> None:
        """The same, for who knows only the uid."""
        if uid in self.known.places:
            self.wake(self.known.places[uid])

    def wake_cluster(self, cluster: str) -> None:
        """A SlurmCluster came or changed: all its SlurmJobs may go on."""
        for place, job in self.known.jobs.items():
            if cluster_of(job, self._watches) == cluster:
                self.wake(place)

    def job_seen(self, job: SlurmJob) -> None:
        """A watch has shown a SlurmJob."""
        place = (job.namespace, job.name)
        self.known.jobs[place] = job
        self.known.places[job.uid] = place
        self.wake(place)

    def job_gone(self, job: SlurmJob) -> None:
        """A watch has shown that it is gone."""
        self.known.jobs.pop((job.namespace, job.name), None)
        self.known.places.pop(job.uid, None)
        self.known.companions.pop(job.uid, None)

    def companion_seen(self, pod: Object, *, gone: bool) -> None:
        """A watch has shown a pod that may be a companion; whether it is one is decided by its uid."""
        uid = pod["metadata"].get("labels", {}).get(LABEL_JOB_UID, "")
        if gone:
            self.known.companions.pop(uid, None)
        else:
            self.known.companions[uid] = pod
        self.wake_uid(uid)

    async def run(self) -> None:
        """Work off the queue until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work(group))

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            place = await self._queue.get()
            self._queued.discard(place)
            if place in self._working:
                group.create_task(self._again(place, 0.1))
                continue
            self._working.add(place)
            try:
                await self._handle(place, group)
            finally:
                self._working.discard(place)

    async def _handle(self, place: Place, group: asyncio.TaskGroup) -> None:
        try:
            await self.reconcile(place)
        except (ApiRefused, RedboxError, OSError, TimeoutError) as error:
            failures = self._failures[place] = self._failures.get(place, 0) + 1
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 6))
            log.warning("reconcile", slurmjob="/".join(place), error=str(error), again_in_s=pause)
            group.create_task(self._again(place, pause))
        else:
            self._failures.pop(place, None)

    async def _again(self, place: Place, pause: float) -> None:
        await asyncio.sleep(pause)
        self.wake(place)

    async def reconcile(self, place: Place) -> None:
        """One look at one SlurmJob, and what it takes."""
        job = self.known.jobs.get(place)
        if job is None:
            return
        watch = self._watches.get(cluster_of(job, self._watches) or "")
        if job.being_deleted:
            await self._end(job, watch)
        elif FINALIZER not in job.finalizers:
            await self._set_finalizers(job, [*job.finalizers, FINALIZER])
        elif watch is None:
            await self._tell(
                job, None, None, f"there is no SlurmCluster {job.spec.cluster}: create it, or name another"
            )
        else:
            await self._keep(job, watch)

    async def _keep(self, job: SlurmJob, watch: RedboxWatch) -> None:
        row = watch.row(job.uid, FIRST_ATTEMPT, job.namespace, job.spec.service_account_name)
        companion = self.known.companions.get(job.uid)
        if companion is None and not (row and row.phase in FINAL_PHASES):
            companion = await self._make_companion(job, watch.cluster)
        await self._tell(job, row, companion, refusal_of(companion) if row is None else None)

    async def _make_companion(self, job: SlurmJob, cluster: SlurmCluster) -> Object | None:
        await self._objects.create(Where("ConfigMap", namespace=job.namespace), config_map(job, cluster))
        pod = companion_pod(job, cluster, FIRST_ATTEMPT, self._image)
        made = await self._objects.create(Where("Pod", namespace=job.namespace), pod)
        if made is None:
            existing = await self._objects.get(Where("Pod", pod_name(job.name), job.namespace))
            made = existing if existing and _is_ours(existing, job) else None
        return made

    async def _tell(
        self, job: SlurmJob, row: Job | None, companion: Object | None, problem: str | None
    ) -> None:
        status = status_of(job, row, companion, problem)
        if status != job.status:
            with contextlib.suppress(KeyError):
                await self._apply(job, status)

    async def _apply(self, job: SlurmJob, status: Object) -> None:
        try:
            await self._objects.apply_status(slurm_job(job.namespace, job.name), status)
        except ApiRefused as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise

    async def _end(self, job: SlurmJob, watch: RedboxWatch | None) -> None:
        """The finalizer is lifted when the job is final, or never was."""
        if FINALIZER not in job.finalizers:
            return
        if watch is None and job.status.get("companion"):
            missing = f"its job cannot be cancelled: SlurmCluster {job.spec.cluster} is gone; create it again"
            await self._tell(job, None, self.known.companions.get(job.uid), missing)
        elif watch is None or await self._has_ended(job, watch):
            await self._set_finalizers(job, [one for one in job.finalizers if one != FINALIZER])

    async def _has_ended(self, job: SlurmJob, watch: RedboxWatch) -> bool:
        owner = OwnerRef(cluster="", namespace=job.namespace, account=job.spec.service_account_name)
        try:
            cancelled = await watch.cancel(job.uid, owner)
        except NoSuchJob:
            return True
        return all(one.phase in FINAL_PHASES for one in cancelled)

    async def _set_finalizers(self, job: SlurmJob, finalizers: list[str]) -> None:
        where = slurm_job(job.namespace, job.name)
        version = job.metadata["resourceVersion"]
        await self._objects.set_finalizers(where, finalizers, resource_version=version)


def _is_ours(pod: Object, job: SlurmJob) -> bool:
    owners = pod["metadata"].get("ownerReferences", [])
    return any(owner["uid"] == job.uid and owner.get("controller") for owner in owners)
