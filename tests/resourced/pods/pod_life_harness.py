"""resourced with one virtual node and one red-box, both in memory; the translation is a test's own."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from redbox_api.bodies import UNMETERED
from redbox_api.client import RedboxClient
from redbox_api.errors import Conflict, NoSuchJob, RedboxError, Unreachable
from redbox_api.models import Job, JobList, JobRequest, OwnerRef, Partition, Phase, Problem, WatchEvent
from redbox_api.requests.sender import TokenSource
from redbox_clusters.names import ANNOTATION_PARTITION, LABEL_VIRTUAL
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.pods import reconciler
from redbox_resourced.pods.reconciler import PodReconciler
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.translation.pod import TargetPartition
from redbox_resourced.translation.references import PodReferences
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import slurm_cluster
from tests.resourced.pods.factories import manifest, pod_job

POD = ResourcePath(kinds.POD, "train", "alice")
NODE = ResourcePath(kinds.NODE, "hpc1.debug")
NODE_BODY: Object = {
    "metadata": {
        "labels": {LABEL_VIRTUAL: "true"},
        "annotations": {ANNOTATION_PARTITION: "Debug"},
        "creationTimestamp": "2026-11-20T00:00:00Z",
    },
    "spec": {"providerID": "redbox://hpc1/Debug"},
}


def problem(status: int) -> Problem:
    return Problem(type="about:blank", title="No", status=status, detail="not so")


class MemoryRedbox:
    """Jobs by key, tombstones, and a watch; requests show a token unless they are resourced's own."""

    share = UNMETERED

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.buried: set[str] = set()
        self.of_an_earlier_account: set[str] = set()
        """Keys of jobs whose account was deleted since, and made again."""
        self.asked: list[str] = []
        self.owners: list[OwnerRef | None] = []
        self.failing: RedboxError | None = None
        self.refusing_puts: RedboxError | None = None
        self.puts = asyncio.Event()
        """Set: PUTs are answered."""
        self.puts.set()
        self._changed: asyncio.Queue[Job] = asyncio.Queue()
        self._token: TokenSource | None = None

    def speaking_for(self, token: TokenSource) -> MemoryRedbox:
        other = copy.copy(self)
        other._token = token
        return other

    def change(self, job: Job) -> None:
        self.jobs[job.key] = job
        self._changed.put_nowait(job)

    async def _receive(self, what: str) -> None:
        if self._token is not None:
            await self._token()
        self.asked.append(what if self._token else f"{what} as resourced")
        if self.failing:
            raise self.failing

    async def list_jobs(self, **_: Any) -> AsyncIterator[JobList]:
        if self.failing:
            raise self.failing
        yield JobList(items=list(self.jobs.values()), revision="1")

    async def watch_jobs(self, _: str) -> AsyncIterator[WatchEvent]:
        while True:
            yield WatchEvent(type="job", revision="2", job=await self._changed.get())

    async def get_job(self, key: str, *, attempt: int, tasks: bool) -> Job:
        assert not tasks  # there may be 50,000
        await self._receive("GET")
        if key not in self.jobs:
            raise NoSuchJob(problem(404))
        return self.jobs[key].model_copy(update={"attempt": attempt})

    async def put_job(self, key: str, request: JobRequest, *, attempt: int) -> Job:
        assert request.batch
        await self._receive("PUT")
        if self.refusing_puts:
            raise self.refusing_puts
        await self.puts.wait()
        if key in self.buried:
            raise Conflict(problem(409))
        self.jobs[key] = pod_job(Phase.PENDING).model_copy(update={"key": key, "attempt": attempt})
        return self.jobs[key]

    async def cancel_job(
        self, key: str, *, attempt: int, force: bool = False, owner: OwnerRef | None = None
    ) -> list[Job]:
        await self._receive("DELETE force" if force else "DELETE")
        self.owners.append(owner)
        if key not in self.jobs or (self._token and key in self.of_an_earlier_account):
            self.buried.add(key)
            raise NoSuchJob(problem(404))
        job = self.jobs[key].model_copy(update={"cancel_requested": True, "attempt": attempt})
        self.jobs[key] = job
        return [job]


class PodLife:
    """One pod from its binding to its end."""

    def __init__(self, *, pods_enabled: bool = True) -> None:
        self.api = FakeApiServer()
        self.api.put(NODE, copy.deepcopy(NODE_BODY))
        self.redbox = MemoryRedbox()
        self.translated: list[tuple[Object, PodReferences, str]] = []
        self.refusal: Exception | None = None
        self.request_options: list[str] = []
        self.request_script: Callable[[Object], str] = lambda _: "#!/bin/sh\n"
        cluster = slurm_cluster(pods={"enabled": pods_enabled})
        self.partitions: dict[str, Partition] = {}
        self.followed = {"hpc1": SimpleNamespace(cluster=cluster, client=cast("RedboxClient", self.redbox))}
        self.is_cluster_listed = True
        clusters = SimpleNamespace(
            followed=self.followed,
            of_node=self._connection,
            may_have_node=lambda _: bool(self.followed) or not self.is_cluster_listed,
        )
        submitter = PodSubmitter(self.api.client, self._translate)
        self.now = datetime(2026, 11, 21, 13, 59, 30, tzinfo=UTC)
        self.pods = PodReconciler(
            self.api.client,
            cast("ClusterRegistry", clusters),
            submitter,
            "10.0.0.7",
            wall_clock=lambda: self.now,
        )

    def _connection(self, _: str) -> ClusterConnection | None:
        found = self.followed.get("hpc1")
        return ClusterConnection(found.cluster, found.client, self.partitions) if found else None

    def change_cluster(self, *, metadata: dict[str, Any] | None = None, **spec: Any) -> None:
        """An administrator changes the SlurmCluster."""
        changed = slurm_cluster(**{"pods": {"enabled": True}, **spec})
        metadata = {**changed.metadata, **(metadata or {})}
        self.followed["hpc1"].cluster = changed.model_copy(update={"metadata": metadata})

    def _translate(
        self, pod: Object, references: PodReferences, settings: Any, partition: TargetPartition
    ) -> JobRequest:
        assert settings.enabled
        if self.refusal:
            raise self.refusal
        self.translated.append((pod, references, partition.name))
        return JobRequest(batch=self.request_script(pod), options=self.request_options)

    def create(self, *, metadata: Any = None, **spec: Any) -> None:
        self.api.put(POD, manifest(metadata=metadata, **spec))

    def delete(self) -> None:
        """As `kubectl delete` does: a pod with a grace period stays until its node removes it."""
        body = copy.deepcopy(self.api.objects[POD])
        body["metadata"] |= {"deletionTimestamp": "2026-11-21T14:00:00Z", "deletionGracePeriodSeconds": 30}
        self.api.put(POD, body)

    @property
    def exists(self) -> bool:
        return POD in self.api.objects

    @property
    def status(self) -> Object:
        found: Object = self.api.objects[POD].get("status", {})
        return found

    @property
    def waiting_reason(self) -> str:
        rows = self.status.get("containerStatuses") or [{}]
        return str(rows[0].get("state", {}).get("waiting", {}).get("reason", ""))

    @property
    def rows(self) -> list[Job]:
        feed = self.pods.job_feeds.get("hpc1")
        return list(feed.rows.values()) if feed else []

    async def settled(self) -> None:
        """Until its deletion was reconciled."""
        await until(lambda: self.pods.informer.pods[POD.namespace, POD.name].is_being_deleted)
        await until(lambda: not self.pods.queue.unfinished)

    def written(self) -> list[Object]:
        """Each status, oldest first."""
        return [body["status"] for where, _, part, body in self.api.applied if where == POD and part]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (nothing sets an event)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def pod_life(**options: Any) -> AsyncIterator[PodLife]:
    life = PodLife(**options)
    running = asyncio.create_task(life.pods.run())
    try:
        yield life
    finally:
        running.cancel()
        await asyncio.wait({running})


AWAY = Unreachable("red-box is away")
SILENT_TRIES = reconciler.SILENT_TRIES
