"""Brings the jobs of pods up to date: files of their volumes, tokens, deadlines.

The row at red-box shows what a job has (`live_sources`), watches and the pod what it should have:
a difference is an update, whatever was missed meanwhile. Watches and rows enqueue pods; each is updated once
in some seconds at most, by as many requests at a time as its namespace has slots.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http import HTTPStatus

import structlog

from redbox_api.errors import Conflict, NoSuchJob, RedboxError, Refused
from redbox_api.models import FINAL_PHASES, Job, Phase
from redbox_api.pod_parts import PodUpdate
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import ApiError, ObjectClient
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.pods.pod_view import BoundPod, BoundPodKind
from redbox_resourced.pods.reported.pod_events import PodEvents
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.pods.submission_errors import SubmissionPending
from redbox_resourced.pods.updates.changes import (
    MOST_SOURCES,
    JobInputs,
    PodChanges,
    SourceFailed,
    inputs_of_job,
)
from redbox_resourced.pods.updates.watched_objects import ObjectPlace, Watched, WatchedObjects
from redbox_shared.backoff import Backoff
from redbox_shared.keyed_semaphores import FairSlots

log = structlog.get_logger(__name__)
AT_ONCE, OF_A_CLUSTER, OF_A_NAMESPACE = 256, 16, 4
"""A red-box that hangs holds those of its cluster."""
SETTLE_S = 1.0
"""After a change: several often come together."""
EVERY_S = 15.0
"""Of one pod."""
RETRY_S = 60.0
"""Where the API server gives no token."""
BACKOFF = Backoff(2.0, 120.0)
FAILED = "FailedMount"
OF_CONTENT = frozenset({HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY})
"""How red-box refuses files that it never takes."""


@dataclass(slots=True)
class UpdatablePod:
    """A pod with a job that something may change."""

    pod: BoundPod
    inputs: str
    """Of its job."""
    before: str = ""
    """Of its job before the last update: a row that was sent before shows them once more."""
    failed: dict[int, str] = field(default_factory=dict)
    """Sources that cannot be made, and what of: nothing is read again for them until that changes."""
    mounted: Collection[ObjectPlace] = ()
    """Where it is indexed: its words may change."""
    one_by_one: bool = False
    """Its sources, since red-box refused several together: one of them must not keep the others."""
    due_at: float = 0.0
    tries: int = 0


class PodUpdater:
    """Of all pods that run. `namespaces`: where the chart lets Secrets and ConfigMaps be watched."""

    def __init__(
        self,
        objects: ObjectClient,
        clusters: ClusterRegistry,
        submitter: PodSubmitter,
        namespaces: Collection[str],
        token_namespaces: Collection[str],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.queue: WorkQueue[Place] = WorkQueue()
        self._clusters = clusters
        self._submitter = submitter
        self._namespaces = frozenset(namespaces)
        self._now = now
        self._watched = WatchedObjects(objects, self._object_changed)
        self._changes = PodChanges(objects, self._watched, submitter, token_namespaces)
        self._events = PodEvents(objects)
        self._followed: dict[Place, UpdatablePod] = {}
        self._mounting: dict[ObjectPlace, set[Place]] = {}
        self._slots = FairSlots(AT_ONCE, OF_A_CLUSTER, OF_A_NAMESPACE)
        self._warnings = GroupedWarnings("pods not updated")

    @property
    def failing(self) -> Collection[str]:
        """Pods that could not be updated last."""
        return self._warnings.failing

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run(self._reconcile, workers=None))
            while True:
                self._watched.keep(self._wanted(), group)
                await asyncio.sleep(SETTLE_S)

    def _wanted(self) -> set[Watched]:
        return {(place.kind, place.namespace) for place in self._mounting}

    # -- changes

    def pod_shown(self, pod: BoundPod, job: Job, _: SlurmCluster) -> None:
        """After each reconciliation of a pod with a job."""
        if pod.role is not BoundPodKind.POD or job.phase in FINAL_PHASES or not job.pod_inputs:
            self._forget(pod.place)
            return
        if job.phase is Phase.SUBMITTING:
            return
        followed = self._followed.get(pod.place)
        if followed is None or followed.pod.uid != pod.uid:
            self._forget(pod.place)
            if not _may_change(pod, job.pod_inputs):
                return
            followed = self._followed[pod.place] = UpdatablePod(pod, job.pod_inputs)
            self._index(followed)
        followed.pod = pod
        if job.pod_inputs != followed.before:
            followed.inputs = job.pod_inputs
        self._enqueue(followed)

    def pod_deleted(self, pod: BoundPod) -> None:
        self._forget(pod.place)
        self._events.forget(pod)

    def _object_changed(self, place: ObjectPlace) -> None:
        for mounting in self._mounting.get(place, ()):
            if followed := self._followed.get(mounting):
                self._enqueue(followed)

    def _enqueue(self, followed: UpdatablePod) -> None:
        """Whether anything is due is looked up when it is its turn: changes come in bursts."""
        self.queue.add_later(followed.pod.place, max(SETTLE_S, followed.due_at - self._now()))

    def _due(self, followed: UpdatablePod, job: JobInputs, connection: ClusterConnection) -> list[int]:
        due = self._changes.due(job, connection, self._now())
        return [number for number in due if followed.failed.get(number) != self._state_of(job, number)]

    def _state_of(self, job: JobInputs, number: int) -> str:
        source = job.sources[number]
        version = self._watched.version(ObjectPlace(source.kind, job.pod.namespace, source.name))
        return version or job.parts.fields

    def _index(self, followed: UpdatablePod) -> None:
        job = inputs_of_job(followed.pod, followed.inputs)
        if job is not None and followed.pod.namespace in self._namespaces:
            followed.mounted = tuple(job.objects())
            for place in followed.mounted:
                self._mounting.setdefault(place, set()).add(followed.pod.place)

    def _forget(self, place: Place) -> None:
        followed = self._followed.pop(place, None)
        if followed is None:
            return
        self.queue.forget(place)
        self._warnings.recovered("/".join(place))
        for mounted in followed.mounted:
            if mounting := self._mounting.get(mounted):
                mounting.discard(place)
                if not mounting:
                    del self._mounting[mounted]

    # -- one pod

    async def _reconcile(self, place: Place) -> None:
        followed = self._followed.get(place)
        if followed is None or followed.pod.is_being_deleted:
            return
        if followed.due_at > self._now():
            self._enqueue(followed)
            return
        try:
            await self._try(followed)
        except Exception:
            # A pod that one tenant wrote must not stop the service for all.
            log.exception("update", pod="/".join(place))
            self._retry(followed)

    async def _try(self, followed: UpdatablePod) -> None:
        place = followed.pod.place
        try:
            await self._update(followed)
        except (NoSuchJob, Conflict):  # it has ended, or is of an earlier red-box
            self._forget(place)
        except (ApiError, RedboxError, SubmissionPending, TimeoutError) as error:
            if self._retry(followed):
                self._warnings.failed("/".join(place), error)
                await self._show(followed, error)
        else:
            self._warnings.recovered("/".join(place))
            followed.tries = 0

    def _retry(self, followed: UpdatablePod) -> bool:
        """False for one that is gone."""
        if self._followed.get(followed.pod.place) is not followed:
            return False
        followed.tries += 1
        followed.due_at = self._now() + BACKOFF.pause_s(followed.tries)
        self._enqueue(followed)
        return True

    async def _update(self, followed: UpdatablePod) -> None:
        pod, connection = followed.pod, self._clusters.of_node(followed.pod.node)
        if connection is None:
            return
        async with self._slots.of(connection.cluster.name, pod.namespace):
            job = inputs_of_job(pod, followed.inputs)
            if job is None:
                return
            due, now = self._due(followed, job, connection), self._now()
            if due or job.has_sooner_deadline:
                followed.due_at = now + EVERY_S
                self._enqueue(followed)  # until nothing is due
                await self._send(followed, job, due, connection)
            elif (renewal_at := job.renewal_after(now)) is not None:
                self.queue.add_later(pod.place, renewal_at - now)

    async def _send(
        self, followed: UpdatablePod, job: JobInputs, due: list[int], connection: ClusterConnection
    ) -> None:
        pod, states = followed.pod, {number: self._state_of(job, number) for number in due}
        sources: list[int] = []
        failures: dict[int, SourceFailed] = {}

        async def make() -> PodUpdate | None:
            nonlocal sources, failures
            most = 1 if followed.one_by_one else MOST_SOURCES
            update, sources, failures = await self._changes.make(job, due, connection, most)
            return update

        async with self._submitter.made(pod, connection, make) as update:
            await self._note_failures(followed, failures, states)
            if update is None:
                return
            try:
                shown = await self._submitter.update(pod, connection, update)
            except Refused as refusal:
                if not sources or refusal.problem.status not in OF_CONTENT:
                    raise
                followed.one_by_one = True
                refused = {number: SourceFailed(job.sources[number], str(refusal)) for number in sources}
            else:
                followed.before, followed.inputs = followed.inputs, shown.pod_inputs or update.inputs
                return
        if len(refused) == 1:  # else each is sent alone next
            await self._note_failures(followed, refused, states)

    async def _note_failures(
        self, followed: UpdatablePod, failures: dict[int, SourceFailed], states: dict[int, str]
    ) -> None:
        for number, failure in failures.items():
            if failure.may_pass:
                followed.due_at = self._now() + RETRY_S
            else:
                followed.failed[number] = states[number]
        for failure in failures.values():
            await self._events.warn(followed.pod, FAILED, str(failure))

    async def _show(self, followed: UpdatablePod, error: Exception) -> None:
        """Where red-box can say why."""
        if isinstance(error, Refused) and (not error.retry or followed.tries > 1):
            message = f"Changes of the pod's files could not be sent to its job: {error}"
            await self._events.warn(followed.pod, FAILED, message)


def _may_change(pod: BoundPod, inputs: str) -> bool:
    job = inputs_of_job(pod, inputs)
    return job is not None and bool(job.sources or job.has_sooner_deadline)
