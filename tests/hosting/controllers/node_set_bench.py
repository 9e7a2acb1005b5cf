"""A NodeSet `w` of a Controller `slurm` with the controller of NodeSets, a Slurm and a kubelet in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Unpack

from prometheus_client import CollectorRegistry, Counter

from redbox_hosting.api import names
from redbox_hosting.build.pods.network import workers_budget
from redbox_hosting.controllers import slurm_snapshots
from redbox_hosting.controllers.context import DefaultImages, HostingContext, OperatorPods
from redbox_hosting.controllers.slurm_connections import SlurmConnections
from redbox_hosting.controllers.slurm_snapshots import SlurmSnapshots
from redbox_hosting.controllers.watched_kinds import HostingWatches
from redbox_hosting.controllers.workers.node_sets import NodeSets
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.api.request_options import DeleteOptions
from redbox_kube.controller.controller import run_controllers
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.controller.namespace_leases import NamespaceLeases
from redbox_kube.status.status_writer import StatusWriter
from tests.hosting.controllers.fake_slurm import FakeKubelet, FakeSlurm
from tests.hosting.factories import cell
from tests.kube.fakes import FakeApiServer

SLURM = ResourcePath(names.CONTROLLERS, "slurm", "hpc")
WORKERS = ResourcePath(names.NODE_SETS, "w", "hpc")
BUDGET = ResourcePath(kinds.POD_DISRUPTION_BUDGET, "slurm-workers", "hpc")
NAMESPACE = ResourcePath(kinds.NAMESPACE, "hpc")
K1 = ResourcePath(kinds.NODE, "k1")
LIMITS = {"cpu": "1", "memory": "1Gi"}
READY_NODE: Object = {
    "spec": {},
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    },
}


def spec(replicas: int | None = 3, **more: Any) -> Object:
    given = {"controllerRef": {"name": "slurm"}, "slurmd": {"resources": {"limits": LIMITS}}, **more}
    return given if replicas is None else {**given, "replicas": replicas}


class GuardedApiServer(FakeApiServer):
    """With the admission policy of workers, and the jobs that were on each pod as it was deleted."""

    def __init__(self, slurm: FakeSlurm) -> None:
        super().__init__()
        self.deletions: list[tuple[str, list[int]]] = []
        self._slurm = slurm

    async def delete(
        self, where: ResourcePath, *, uid: str = "", version: str = "", **options: Unpack[DeleteOptions]
    ) -> HTTPStatus:
        metadata = self.objects.get(where, {}).get("metadata", {})
        if where.kind == kinds.POD:
            is_forced = names.ANNOTATION_FORCE_DELETE in (metadata.get("annotations") or {})
            if names.LABEL_PROTECTED in (metadata.get("labels") or {}) and not is_forced:
                raise ApiRefused(HTTPStatus.UNPROCESSABLE_ENTITY, f"the worker {where.name} may have jobs")
        jobs = self._slurm.jobs_on(where.name)
        answer = await super().delete(where, uid=uid, version=version, **options)
        if where.kind == kinds.POD and answer is HTTPStatus.OK:
            self.deletions.append((where.name, jobs))
        return answer


@dataclass
class NodeSetBench:
    """The parts of one test."""

    api: GuardedApiServer
    slurm: FakeSlurm
    kubelet: FakeKubelet
    registry: CollectorRegistry

    def scale(self, replicas: int, **more: Any) -> None:
        """Change the spec, as a user."""
        found = self.api.objects.get(WORKERS)
        generation = 1 + int(found["metadata"].get("generation", 1)) if found else 1
        metadata = {**(found["metadata"] if found else {}), "generation": generation}
        status = {"status": found["status"]} if found and "status" in found else {}
        self.api.put(WORKERS, metadata=metadata, spec=spec(replicas, **more), **status)

    def event(self, reason: str) -> str:
        """The message of the newest event of this reason."""
        return next((str(e["message"]) for e in reversed(self.api.events) if e["reason"] == reason), "")

    @property
    def pods(self) -> list[str]:
        return self.api.names("Pod")

    def pod(self, name: str) -> Object:
        return self.api.objects[self.kubelet.at(name)]

    @property
    def status(self) -> Object:
        return dict(self.api.objects[WORKERS].get("status") or {})

    def condition(self, name: str) -> Object:
        found = self.status.get("conditions") or []
        return next((dict(each) for each in found if each["type"] == name), {})

    async def has(self, check: Callable[[], object]) -> None:
        async with asyncio.timeout(100):
            while not check():  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.005)

    async def pause(self, seconds: float) -> None:
        """For a storm, where whatever happens meanwhile is right."""
        await asyncio.sleep(seconds)

    async def up(self, replicas: int = 3, **more: Any) -> None:
        """All workers are ready, and Slurm has their nodes."""
        self.scale(replicas, **more)
        await self.has(lambda: len(self.pods) == replicas)
        self.kubelet.start_all()
        await self.has(lambda: self.status.get("availableReplicas") == replicas)
        await self.has(lambda: self.status.get("slurmIdle") == replicas)

    async def settled(self, reads: int = 4) -> None:
        """Slurm was read some times more, and what followed is written."""
        self.slurm.read_count = 0
        await self.has(lambda: self.slurm.read_count >= reads)


@asynccontextmanager
async def operator(
    api: FakeApiServer,
    slurm: FakeSlurm | SlurmrestdClient,
    *,
    reads_nodes: bool = True,
    registry: CollectorRegistry | None = None,
) -> AsyncIterator[NamespaceLeases]:
    """The controller of NodeSets, as the program runs it; killed at the end."""
    connections = SlurmConnections()
    snapshots = SlurmSnapshots(connections)
    client = slurm.client if isinstance(slurm, FakeSlurm) else slurm
    connections.connect(("hpc", "slurm"), client)
    writes = Counter("writes", "Writes.", ("kind", "verb"), registry=None)
    leases = NamespaceLeases(api.client, ["hpc"], "redbox-hosting", object_format=1)
    context = HostingContext(
        writer=StatusWriter(api.client, writes, why_not_delete=leases.why_not_delete),
        metrics=ControllerMetrics(CollectorRegistry()),
        leases=leases,
        watches=HostingWatches(api.client, ["hpc"]),
        connections=connections,
        snapshots=snapshots,
        images=DefaultImages("registry.example.org/slurm:26.05"),
        operator=OperatorPods("redbox-system"),
        namespaces=["hpc"],
        registry=registry or CollectorRegistry(),
        reads_nodes=reads_nodes,
        node_conditions=frozenset({"KernelDeadlock"}),
    )
    controller = NodeSets(context).controller
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(leases.run(controller.reconcile_all)),
            group.create_task(snapshots.run()),
            group.create_task(run_controllers([controller])),
        ]
        try:
            yield leases
        finally:
            for task in tasks:
                task.cancel()


@asynccontextmanager
async def bench(*, reads_nodes: bool = True, runs: bool = True) -> AsyncIterator[NodeSetBench]:
    """`runs`: with an operator; otherwise the test starts and ends some."""
    slurm = FakeSlurm()
    api = GuardedApiServer(slurm)
    api.put(SLURM, spec={})
    api.put(BUDGET, spec=workers_budget(cell())["spec"])
    api.put(NAMESPACE)
    api.put(K1, READY_NODE)
    made = NodeSetBench(api, slurm, FakeKubelet(api, slurm), CollectorRegistry())
    before = slurm_snapshots.CHANGING_S, slurm_snapshots.AWAITED_S, slurm_snapshots.IDLE_S
    slurm_snapshots.CHANGING_S = slurm_snapshots.AWAITED_S = slurm_snapshots.IDLE_S = 0.02
    try:
        running = operator(api, slurm, reads_nodes=reads_nodes, registry=made.registry)
        async with running if runs else nullcontext():
            yield made
    finally:
        slurm_snapshots.CHANGING_S, slurm_snapshots.AWAITED_S, slurm_snapshots.IDLE_S = before
