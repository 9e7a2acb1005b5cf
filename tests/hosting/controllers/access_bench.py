"""All controllers but that of workers at the API server of the tests, a slurmdbd in memory and a clock."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from redbox_hosting.controllers.access.login_sets import LoginSets
from redbox_hosting.controllers.access.rest_apis import RestApis
from redbox_hosting.controllers.access.tokens import Tokens
from redbox_hosting.controllers.accountings.accountings import Accountings
from redbox_hosting.controllers.clusters.slurm_controllers import SlurmControllers
from redbox_hosting.controllers.context import DefaultImages, HostingContext, OperatorPods
from redbox_hosting.controllers.slurm_connections import SlurmConnections
from redbox_hosting.controllers.slurm_snapshots import SlurmSnapshots
from redbox_hosting.controllers.watched_kinds import HostingWatches
from redbox_kube.api import kinds
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.controller.controller import run_controllers
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.controller.namespace_leases import NamespaceLeases
from redbox_kube.status.status_writer import StatusWriter
from tests.hosting.controllers.fake_slurmdbd import FakeSlurmdbd, slurmdbd
from tests.kube.fakes import FakeApiServer

IMAGES = DefaultImages("registry.example.org/redbox-slurm:26.05", "registry.example.org/mariadb:11.8")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(kind: Kind, name: str) -> ResourcePath:
    return ResourcePath(kind, name, "hpc")


class LoggingApiServer(FakeApiServer):
    """With logs of containers, by path."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, str] = {}

    async def answer(self, method: str, path: str, **_: Any) -> bytes:
        assert method == "GET"
        if path not in self.logs:
            raise ApiRefused(404, "pod not found")
        return self.logs[path].encode()


@dataclass
class AccessBench:
    """The parts of one test."""

    api: LoggingApiServer
    slurmdbd: FakeSlurmdbd
    connections: SlurmConnections
    now: datetime = BEGIN
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    reconcile_all: Callable[[], None] = lambda: None
    parts: dict[type, Any] = field(default_factory=dict)
    has_kubelet: bool = True
    images: DefaultImages = IMAGES

    def put(self, kind: Kind, name: str, **spec: Any) -> None:
        """Create, or change the spec, as a user."""
        where = at(kind, name)
        found = self.api.objects.get(where)
        metadata = dict(found["metadata"]) if found else {}
        metadata["generation"] = int(metadata.get("generation", 0)) + 1
        status = {"status": found["status"]} if found and "status" in found else {}
        self.api.put(where, metadata=metadata, spec=spec, **status)

    def passes(self, **time: float) -> None:
        """The clock goes on, and everything is looked at again, as by its timers."""
        self.now += timedelta(**time)
        self.reconcile_all()

    def condition(self, kind: Kind, name: str, kind_of: str = "Ready") -> Object:
        conditions = self.api.objects[at(kind, name)].get("status", {}).get("conditions") or []
        return next((dict(each) for each in conditions if each["type"] == kind_of), {})

    def says(self, kind: Kind, name: str, kind_of: str = "Ready") -> str:
        found = self.condition(kind, name, kind_of)
        return f"{found.get('status')}: {found.get('message', '')}"

    def secret(self, name: str) -> Mapping[str, str]:
        data = self.api.objects[at(kinds.SECRET, name)].get("data", {})
        return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}

    def put_secret(self, name: str, **data: str) -> None:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        self.api.put(at(kinds.SECRET, name), data=encoded)

    def is_there(self, kind: Kind, name: str) -> bool:
        return at(kind, name) in self.api.objects

    def make_ready(self) -> None:
        """Each StatefulSet and Deployment has its ready pod, as the kubelet and Kubernetes do it."""
        for where, body in list(self.api.objects.items()):
            if where.kind in (kinds.STATEFUL_SET, kinds.DEPLOYMENT) and not body.get("status"):
                status: Object = {"readyReplicas": 1, "updatedReplicas": 1, "replicas": 1}
                status |= {"currentRevision": "1", "updateRevision": "1"}
                generation = body["metadata"].get("generation")
                self.api.put(where, {**body, "status": {**status, "observedGeneration": generation}})

    def register(self, *controllers: str) -> None:
        """slurmctld runs and has registered, and slurmrestd answers."""
        for name in controllers:
            self.slurmdbd.clusters[f"hpc_{name}"] = "10.0.0.1"
            self.connections.connect(("hpc", name), self.slurmdbd.client())

    async def has(self, check: Callable[[], object]) -> None:
        """Until it is so; StatefulSets and Deployments get ready meanwhile."""
        async with asyncio.timeout(20):
            while not check():
                if self.has_kubelet:
                    self.make_ready()
                await asyncio.sleep(0.005)

    async def settled(self) -> None:
        """Everything was reconciled once more, and what followed is written."""
        for _ in range(3):
            self.reconcile_all()
            await self.has(lambda: not any(part.controller.queue.unfinished for part in self.parts.values()))


@asynccontextmanager
async def operator(bench: AccessBench) -> AsyncIterator[None]:
    """As the program runs it; killed at the end."""
    api, connections = bench.api, bench.connections
    bench.registry = registry = CollectorRegistry()
    leases = NamespaceLeases(api.client, ["hpc"], "redbox-hosting", object_format=1)
    context = HostingContext(
        writer=StatusWriter(
            api.client,
            Counter("writes", "Writes.", ("kind", "verb"), registry=None),
            why_not_delete=leases.why_not_delete,
        ),
        metrics=ControllerMetrics(registry),
        leases=leases,
        watches=HostingWatches(api.client, ["hpc"]),
        connections=connections,
        snapshots=SlurmSnapshots(connections),
        images=bench.images,
        operator=OperatorPods("redbox-system"),
        namespaces=["hpc"],
        registry=registry,
        clock=lambda: bench.now,
    )
    kinds_of_parts = (SlurmControllers, Accountings, RestApis, Tokens, LoginSets)
    bench.parts = {part: part(context) for part in kinds_of_parts}
    controllers = [part.controller for part in bench.parts.values()]

    def reconcile_all(namespace: str = "hpc") -> None:
        for controller in controllers:
            controller.reconcile_all(namespace)

    bench.reconcile_all = reconcile_all
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(leases.run(reconcile_all)),
            group.create_task(run_controllers(controllers)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


@asynccontextmanager
async def stopped_bench() -> AsyncIterator[AccessBench]:
    """The test starts and ends operators."""
    async with slurmdbd() as slurm:
        yield AccessBench(LoggingApiServer(), slurm, SlurmConnections())


@asynccontextmanager
async def bench() -> AsyncIterator[AccessBench]:
    async with stopped_bench() as made, operator(made):
        yield made
