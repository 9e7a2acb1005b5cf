"""A reconciler and one SlurmJob, between an API server and a red-box in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from redbox_api.errors import NoSuchJob
from redbox_api.feed import RowKey
from redbox_api.models import Job, OwnerRef, Phase, Problem
from redbox_clusters.names import SLURM_JOBS
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.constants import FINALIZER
from redbox_operator.api.decode import read_job
from redbox_operator.api.slurmjob import SlurmJobRef, path_of
from redbox_operator.api.slurmjob_status import SlurmJobStatus
from redbox_operator.companion_pods.builder import CompanionProgram
from redbox_operator.companion_pods.plan import companion_of
from redbox_operator.metrics import OperatorMetrics
from redbox_operator.object_cache import ObjectCache
from redbox_operator.slurmcluster.job_feed import RedboxLink, RedboxUnavailable
from redbox_operator.slurmcluster.registry import RedboxLinks
from redbox_operator.slurmcluster.status_lag import StatusLag
from redbox_operator.slurmjob import attempt_pods, deletion
from redbox_operator.slurmjob import reconciler as reconciling
from redbox_operator.slurmjob.reconciler import Reconciler
from tests.kube.fakes import FakeApiServer
from tests.operator.factories import slurm_cluster, slurm_job

IMAGE = "registry.example/redbox-companion:1"
CLUSTER = slurm_cluster()

NO_SUCH_JOB = Problem(type="t", title="There is no such thing", status=404, detail="no such job")
DELETED: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


class Link:
    """A red-box with the jobs that it is given."""

    def __init__(self) -> None:
        self.cluster: SlurmCluster = CLUSTER
        self.rows: dict[RowKey, Job] = {}
        self.unlisted: dict[RowKey, Job] = {}  # ended before the list: shown only by a lookup
        self.absent: set[RowKey] = set()
        self.lag = StatusLag()
        self.partition_watch = SimpleNamespace(partitions=None)
        self.done: list[str] = []
        self.synced = True
        self.away = False
        self.refusal: Exception | None = None
        self.fault: Exception | None = None  # of actions
        self.cancel_answer: list[Job] | None = None  # whatever its jobs are

    def row(self, wanted: RowKey) -> Job | None:
        return self.rows.get(wanted)

    async def find(self, wanted: RowKey) -> Job | None:
        unlisted = None if wanted in self.absent else self.unlisted.get(wanted)
        return self.rows.get(wanted, unlisted)

    def presume_absent(self, new: RowKey) -> None:
        self.absent.add(new)

    def forget(self, done: RowKey) -> None:
        self.rows.pop(done, None)

    async def cancel(self, wanted: RowKey, *, all_attempts: bool) -> list[Job]:
        if self.away:
            raise RedboxUnavailable("no route")
        if self.refusal:
            raise self.refusal
        self.done.append(
            f"cancel {wanted.namespace}/{wanted.account} {'all' if all_attempts else wanted.attempt}"
        )
        if self.cancel_answer is not None:
            return self.cancel_answer
        of = [row for key, row in {**self.unlisted, **self.rows}.items() if key.key == wanted.key]
        if not of:
            raise NoSuchJob(NO_SUCH_JOB)
        return of

    async def act(self, wanted: RowKey, act: str, *, run: int | None = None, task: int | None = None) -> None:
        if self.fault:
            raise self.fault
        more = (f" run {run}" if run else "") + (f" task {task}" if task is not None else "")
        self.done.append(f"{act} {wanted.attempt}{more}")
        if self.refusal and act in {"requeue", "cancel-task"}:
            raise self.refusal


class Stand:
    """A reconciler, and one SlurmJob that it looks at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = FakeApiServer()
        self.link = Link()
        self.links: dict[str, Any] = {"hpc1": self.link}
        self.troubles: dict[str, str] = {}
        self.now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
        for module in (reconciling, attempt_pods, deletion):
            monkeypatch.setattr(module, "now", lambda: self.now)
        self.uptime_s = 0.0
        monkeypatch.setattr(reconciling, "monotonic", lambda: self.uptime_s)
        self.cache = ObjectCache()
        self.start()

    def start(self) -> None:
        """As after a restart: with an empty cache."""
        self.metrics = metrics = OperatorMetrics()
        self.cache = ObjectCache()
        self.registry = RedboxLinks(cast("dict[str, RedboxLink]", self.links), self.troubles)
        self.writer = StatusWriter(self.api.client, metrics.writes)
        self.reconciler = Reconciler(self.writer, self.cache, self.registry, CompanionProgram(IMAGE), metrics)
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
        self.put(metadata=metadata, spec=spec or {})
        await self.look()

    def put(self, *, metadata: dict[str, Any], spec: dict[str, Any] | None = None) -> None:
        """Somebody changes these fields, and no watch has shown it yet."""
        job = self.api.objects[self.where]
        changed = {"metadata": {**job["metadata"], **metadata}, "spec": {**job["spec"], **(spec or {})}}
        self.api.put(self.where, {**job, **changed})

    async def look(self) -> float | None:
        """The watch shows all objects; then one reconciliation."""
        there = self.api.objects.get(self.where)
        if there is not None:
            self.reconciler.job_updated(read_job(SLURM_JOBS, there))
        for pod in list(self.cache.companions.values()):
            if ResourcePath(kinds.POD, pod.name, pod.namespace) not in self.api.objects:
                self.reconciler.companion_deleted(pod)
        for body in self.api.of_kind("Pod"):
            if body["metadata"].get("labels"):
                self.reconciler.companion_updated(companion_of(body))
        return await self.reconciler.reconcile(self.ref)

    def has_other(self, name: str, phase: str) -> None:
        """Another SlurmJob of the namespace, which Slurm can wait for."""
        made = slurm_job(name)
        condition = {"type": "Finished", "status": str(phase == "Succeeded"), "reason": phase}
        conditions = [{**condition, "lastTransitionTime": "2026-11-21T12:00:00Z"}]
        status = {"phase": phase, "jobID": "3", "cluster": "hpc1", "conditions": conditions}
        metadata = {**made.metadata, "uid": f"uid-of-{name}", "resourceVersion": "3"}
        self.reconciler.job_updated(
            made.model_copy(update={"metadata": metadata, "status": SlurmJobStatus.model_validate(status)})
        )

    async def at_redbox(
        self, phase: Phase, *, attempt: int = 1, namespace: str = "farm", **facts: Any
    ) -> float | None:
        """Red-box says so."""
        row = self.row_of(phase, attempt, namespace, **facts)
        key = RowKey.of(row)
        self.link.rows[key] = row
        self.link.lag.begin(key)
        return await self.look()

    def ended_unseen(self, phase: Phase, **facts: Any) -> None:
        """Red-box has the job, and no watch has shown it."""
        row = self.row_of(phase, **facts)
        self.link.unlisted[RowKey.of(row)] = row

    @staticmethod
    def row_of(phase: Phase, attempt: int = 1, namespace: str = "farm", **facts: Any) -> Job:
        owner = OwnerRef(cluster="c", namespace=namespace, account="default")
        facts = {"job_id": str(6 + attempt), "state": phase.upper(), **facts}
        return Job(key="0aa6-11", attempt=attempt, owner=owner, user="alice", phase=phase, **facts)

    async def pod_ends(self, message: str, name: str = "cow-job") -> None:
        where = ResourcePath(kinds.POD, name, "farm")
        state = {"terminated": {"exitCode": 1, "message": message}}
        status = {"phase": "Failed", "containerStatuses": [{"state": state}]}
        self.api.put(where, {**self.api.objects[where], "status": status})
        await self.look()

    @property
    def ref(self) -> SlurmJobRef:
        return slurm_job().ref

    @property
    def where(self) -> ResourcePath:
        return path_of(self.ref)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.api.objects[self.where].get("status", {}))

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        return {item["type"]: (item["status"], item["reason"]) for item in self.status["conditions"]}

    @property
    def finalizers(self) -> list[str]:
        """None where it is gone: a deleted object goes with its last finalizer."""
        job = self.api.objects.get(self.where)
        return list(job["metadata"]["finalizers"]) if job else []

    @property
    def pod_names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.api.of_kind("Pod")]

    def event_reasons(self) -> list[str]:
        return [event["reason"] for event in self.api.events]
