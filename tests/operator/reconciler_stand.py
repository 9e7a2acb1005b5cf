"""A reconciler and one SlurmJob, between an API server and a red-box that only remember."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from redbox_api.errors import NoSuchJob
from redbox_api.feed import RowKey
from redbox_api.models import Job, OwnerRef, Phase, Problem
from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, ResourcePath
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_operator.api.constants import FINALIZER
from redbox_operator.api.decode import read_job
from redbox_operator.api.slurmjob import SLURM_JOBS, Place
from redbox_operator.companion.plan import companion_of
from redbox_operator.metrics import Metrics
from redbox_operator.object_cache import Known
from redbox_operator.slurmcluster.job_feed import RedboxLink, RedboxUnavailable
from redbox_operator.slurmcluster.registry import Links
from redbox_operator.slurmjob import deletion
from redbox_operator.slurmjob import reconciler as reconciling
from redbox_operator.slurmjob.reconciler import Reconciler
from redbox_operator.status_writer import Writer, where_is
from tests.operator.making import slurm_cluster, slurm_job

IMAGE = "registry.example/redbox-companion:1"
CLUSTER = slurm_cluster()

NO_SUCH_JOB = Problem(type="t", title="There is no such thing", status=404, detail="no such job")
DELETED: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


class ApiServer:
    """Keeps objects by their path, and counts versions."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.events: list[Object] = []
        self.refusal: ApiRefused | None = None
        self.refuses = ""  # the pod of this name; else every pod
        self.writes = 0
        self.meanwhile: Object = {}
        """What somebody else changes just before the next write of a status."""
        self._version = 10

    def put(self, where: ResourcePath, body: Object) -> Object:
        self._version += 1
        metadata = {"uid": f"uid-{self._version}", **body["metadata"], "resourceVersion": str(self._version)}
        self.objects[where.path()] = {**body, "metadata": metadata}
        return self.objects[where.path()]

    async def create(self, where: ResourcePath, body: Object) -> Object | None:
        if where.kind == "Event":
            self.events.append(body)
            return body
        name = body["metadata"]["name"]
        if self.refusal and where.kind == "Pod" and self.refuses in {"", name}:
            raise self.refusal
        place = ResourcePath(where.kind, name, body["metadata"]["namespace"])
        if place.path() in self.objects:
            return None
        self.writes += 1
        return self.put(place, body)

    async def get(self, where: ResourcePath) -> Object | None:
        return self.objects.get(where.path())

    async def delete(self, where: ResourcePath, *, uid: str = "", grace_s: int | None = None) -> None:
        del grace_s
        there = self.objects.get(where.path())
        if there and there["metadata"]["uid"] == uid:
            del self.objects[where.path()]

    async def apply_status(self, where: ResourcePath, status: Object, *, uid: str = "") -> Object:
        there = self.objects[where.path()]
        assert uid == there["metadata"]["uid"]
        self.writes += 1
        self.meanwhile, changed = {}, self.meanwhile
        metadata = {**there["metadata"], **changed.get("metadata", {})}
        spec = {**there["spec"], **changed.get("spec", {})}
        return self.put(where, {**there, "metadata": metadata, "spec": spec, "status": status})

    async def set_finalizers(
        self, where: ResourcePath, finalizers: list[str], *, resource_version: str
    ) -> Object | None:
        there = self.objects.get(where.path())
        if there is None or there["metadata"]["resourceVersion"] != resource_version:
            return None
        self.writes += 1
        metadata = {**there["metadata"], "finalizers": finalizers}
        return self.put(where, {**there, "metadata": metadata})

    def pods(self) -> list[Object]:
        return [body for path, body in self.objects.items() if "/pods/" in path]


class Link:
    """A red-box with the jobs that it is given."""

    def __init__(self) -> None:
        self.cluster: SlurmCluster = CLUSTER
        self.rows: dict[RowKey, Job] = {}
        self.unlisted: dict[RowKey, Job] = {}  # ended before the list: told only to those who ask
        self.absent: set[RowKey] = set()
        self.untold: set[RowKey] = set()  # changes that no status has told yet
        self.done: list[str] = []
        self.synced = True
        self.away = False
        self.refusal: Exception | None = None

    def row(self, wanted: RowKey) -> Job | None:
        return self.rows.get(wanted)

    async def find(self, wanted: RowKey) -> Job | None:
        unlisted = None if wanted in self.absent else self.unlisted.get(wanted)
        return self.rows.get(wanted, unlisted)

    def presume_absent(self, new: RowKey) -> None:
        self.absent.add(new)

    def forget(self, done: RowKey) -> None:
        self.rows.pop(done, None)

    def take_lag(self, told: RowKey) -> float | None:
        self.untold.discard(told)
        return 0.1

    async def cancel(self, wanted: RowKey, *, all_attempts: bool) -> list[Job]:
        if self.away:
            raise RedboxUnavailable("no route")
        if self.refusal:
            raise self.refusal
        self.done.append(
            f"cancel {wanted.namespace}/{wanted.account} {'all' if all_attempts else wanted.attempt}"
        )
        of = [row for key, row in self.rows.items() if key.key == wanted.key]
        if not of:
            raise NoSuchJob(NO_SUCH_JOB)
        return of

    async def act(self, wanted: RowKey, act: str) -> None:
        self.done.append(f"{act} {wanted.attempt}")


class Stand:
    """A reconciler, and one SlurmJob that it looks at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = ApiServer()
        self.link = Link()
        self.links: dict[str, Any] = {"hpc1": self.link}
        self.troubles: dict[str, str] = {}
        self.now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
        for module in (reconciling, deletion):
            monkeypatch.setattr(module, "now", lambda: self.now)
        self.known = Known()
        self.start()

    def start(self) -> None:
        """As after a restart: nothing is known but what is told anew."""
        metrics = Metrics()
        self.known = Known()
        links = Links(cast("dict[str, RedboxLink]", self.links), self.troubles)
        writer = Writer(cast("ObjectClient", self.api), metrics)
        self.reconciler = Reconciler(writer, self.known, links, IMAGE, metrics)
        self.reconciler.clusters_listed()

    async def apply(self, *, finalizers: tuple[str, ...] = (FINALIZER,), **spec: Any) -> None:
        """Have the SlurmJob with this spec, and look at it."""
        job = slurm_job(**spec)
        body = {
            "metadata": {
                **job.metadata,
                "finalizers": list(finalizers),
                "creationTimestamp": "2026-11-21T12:00:00Z",
            },
            "spec": job.spec.model_dump(by_alias=True, exclude_defaults=True),
        }
        self.api.put(self.where, body)
        await self.look()

    async def change(self, *, spec: dict[str, Any] | None = None, **metadata: Any) -> None:
        there = self.api.objects[self.where.path()]
        changed = {**there, "metadata": {**there["metadata"], **metadata}}
        changed["spec"] = {**there["spec"], **(spec or {})}
        self.api.put(self.where, changed)
        await self.look()

    async def look(self) -> float | None:
        """What is there is told by the watch; then one look."""
        there = self.api.objects.get(self.where.path())
        if there is not None:
            self.reconciler.job_seen(read_job(SLURM_JOBS, there))
        for pod in list(self.known.companions.values()):
            if ResourcePath("Pod", pod.name, pod.namespace).path() not in self.api.objects:
                self.reconciler.companion_gone(pod)
        for body in self.api.pods():
            if body["metadata"].get("labels"):
                self.reconciler.companion_seen(companion_of(body))
        return await self.reconciler.reconcile(self.place)

    def has_other(self, name: str, phase: str) -> None:
        """Another SlurmJob of the namespace, which Slurm can wait for."""
        made = slurm_job(name)
        condition = {"type": "Finished", "status": str(phase == "Succeeded"), "reason": phase}
        conditions = [{**condition, "lastTransitionTime": "2026-11-21T12:00:00Z"}]
        status = {"phase": phase, "jobID": "3", "cluster": "hpc1", "conditions": conditions}
        metadata = {**made.metadata, "uid": f"uid-of-{name}", "resourceVersion": "3"}
        self.reconciler.job_seen(made.model_copy(update={"metadata": metadata, "status": status}))

    async def at_redbox(
        self, phase: Phase, *, attempt: int = 1, namespace: str = "farm", **facts: Any
    ) -> float | None:
        """Red-box says so."""
        owner = OwnerRef(cluster="c", namespace=namespace, account="default")
        facts = {"job_id": str(6 + attempt), "state": phase.upper(), **facts}
        row = Job(key="0aa6-11", attempt=attempt, owner=owner, user="alice", phase=phase, **facts)
        key = RowKey("0aa6-11", attempt, namespace, "default")
        self.link.rows[key] = row
        self.link.untold.add(key)
        return await self.look()

    async def pod_ends(self, message: str, name: str = "cow-job") -> None:
        where = ResourcePath("Pod", name, "farm")
        state = {"terminated": {"exitCode": 1, "message": message}}
        status = {"phase": "Failed", "containerStatuses": [{"state": state}]}
        self.api.put(where, {**self.api.objects[where.path()], "status": status})
        await self.look()

    @property
    def place(self) -> Place:
        return slurm_job().place

    @property
    def where(self) -> ResourcePath:
        return where_is(self.place)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.api.objects[self.where.path()].get("status", {}))

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        return {one["type"]: (one["status"], one["reason"]) for one in self.status["conditions"]}

    @property
    def finalizers(self) -> list[str]:
        return list(self.api.objects[self.where.path()]["metadata"]["finalizers"])

    @property
    def pod_names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.api.pods()]

    def told(self) -> list[str]:
        return [event["reason"] for event in self.api.events]
