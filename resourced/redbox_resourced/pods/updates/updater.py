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

import structlog

from redbox_api.errors import Conflict, NoSuchJob, NotAccepted, RedboxError, Refused
from redbox_api.models import FINAL_PHASES, Job, Phase
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
from redbox_resourced.pods.updates.changes import JobInputs, Made, PodChanges, inputs_of_job
from redbox_resourced.pods.updates.watched_objects import ObjectPlace, Watched, WatchedObjects
from redbox_shared.backoff import Backoff
from redbox_shared.keyed_semaphores import FairSlots

log = structlog.get_logger(__name__)
AT_ONCE, OF_A_NAMESPACE = 16, 4
SETTLE_S = 1.0
"""After a change: several often come together."""
EVERY_S = 15.0
"""Of one pod."""
RETRY_S = 60.0
"""Where the API server gives no token."""
BACKOFF = Backoff(2.0, 120.0)
FAILED = "FailedMount"


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
        self._slots = FairSlots(AT_ONCE, OF_A_NAMESPACE)
        self._warnings = GroupedWarnings("pods not updated")

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
        self._enqueue_if_due(pod.place)

    def pod_deleted(self, pod: BoundPod) -> None:
        self._forget(pod.place)
        self._events.forget(pod)

    def _object_changed(self, place: ObjectPlace) -> None:
        for mounting in self._mounting.get(place, ()):
            self._enqueue_if_due(mounting)

    def _enqueue_if_due(self, place: Place) -> None:
        followed = self._followed[place]
        connection = self._clusters.of_node(followed.pod.node)
        job = inputs_of_job(followed.pod, followed.inputs)
        if connection is None or job is None:
            return
        if self._due(followed, job, connection) or job.has_sooner_deadline:
            self.queue.add_later(place, max(SETTLE_S, followed.due_at - self._now()))
        elif (renewal_at := job.renewal_at) is not None:
            self.queue.add_later(place, renewal_at - self._now())

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
            for place in job.objects():
                self._mounting.setdefault(place, set()).add(followed.pod.place)

    def _forget(self, place: Place) -> None:
        followed = self._followed.pop(place, None)
        if followed is None:
            return
        self.queue.forget(place)
        job = inputs_of_job(followed.pod, followed.inputs)
        for mounted in job.objects() if job is not None else ():
            if mounting := self._mounting.get(mounted):
                mounting.discard(place)
                if not mounting:
                    del self._mounting[mounted]

    # -- one pod

    async def _reconcile(self, place: Place) -> None:
        followed = self._followed.get(place)
        if followed is None or followed.pod.is_being_deleted:
            return
        if (pause_s := followed.due_at - self._now()) > 0:
            self.queue.add_later(place, pause_s)
            return
        name = "/".join(place)
        try:
            async with self._slots.of(place[0]):
                await self._update(followed)
        except (ApiError, RedboxError, SubmissionPending, TimeoutError) as error:
            self._warnings.failed(name, error)
            await self._note_failure(followed, error)
        except Exception:
            # A pod that one tenant wrote must not stop the service for all.
            log.exception("update", pod=name)
            await self._note_failure(followed, None)
        else:
            self._warnings.recovered(name)
            followed.tries = 0
        if self._followed.get(place) is followed:
            self._enqueue_if_due(place)

    async def _update(self, followed: UpdatablePod) -> None:
        pod, connection = followed.pod, self._clusters.of_node(followed.pod.node)
        job = inputs_of_job(pod, followed.inputs)
        if connection is None or job is None:
            return
        due = self._due(followed, job, connection)
        if not due and not job.has_sooner_deadline:
            return
        states = {number: self._state_of(job, number) for number in due}
        made = await self._changes.make(job, due, connection)
        await self._note_failures(followed, made, states)
        if made.update is None:
            return
        followed.due_at = max(followed.due_at, self._now() + EVERY_S)
        shown = await self._submitter.update(pod, connection, made.update)
        followed.before, followed.inputs = followed.inputs, shown.pod_inputs or made.update.inputs

    async def _note_failures(self, followed: UpdatablePod, made: Made, states: dict[int, str]) -> None:
        for number, failure in made.failures.items():
            if failure.may_pass:
                followed.due_at = self._now() + RETRY_S
            else:
                followed.failed[number] = states[number]
            await self._events.warn(followed.pod, FAILED, str(failure))

    async def _note_failure(self, followed: UpdatablePod, error: Exception | None) -> None:
        """It is tried again; where red-box can say why, an event does."""
        if isinstance(error, NoSuchJob | Conflict):  # it has ended, or is of an earlier red-box
            self._forget(followed.pod.place)
            return
        followed.tries += 1
        followed.due_at = self._now() + BACKOFF.pause_s(followed.tries)
        if isinstance(error, NotAccepted) or (isinstance(error, Refused) and followed.tries > 1):
            message = f"Changes of the pod's files could not be sent to its job: {error}"
            await self._events.warn(followed.pod, FAILED, message)


def _may_change(pod: BoundPod, inputs: str) -> bool:
    job = inputs_of_job(pod, inputs)
    return job is not None and bool(job.sources or job.has_sooner_deadline)
