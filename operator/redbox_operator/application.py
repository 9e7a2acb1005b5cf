"""The operator process: all components, under one Lease.

Nothing is read or written before the Lease is held. The process ends when the Lease is lost, or when a
component that all SlurmJobs need fails by a defect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

import kopf
import structlog

from redbox_clusters.redbox_token import ServiceAccountName
from redbox_kube.api.lease import Lease
from redbox_kube.api.objects import ObjectClient
from redbox_kube.controller.controller import run_controllers
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.controller.process import LeaderProcess, run_until_sigterm
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.constants import FIELD_MANAGER
from redbox_operator.companion_pods.builder import CompanionProgram
from redbox_operator.metrics import OperatorMetrics, StateGauges
from redbox_operator.object_cache import ObjectCache
from redbox_operator.serving_approval import ServingApproval
from redbox_operator.slurmcluster.reconciler import EndpointRules, SlurmClusters
from redbox_operator.slurmcluster.registry import RedboxLinks
from redbox_operator.slurmjob.kopf_watches import registry_for, settings_for
from redbox_operator.slurmjob.reconciler import Reconciler
from redbox_operator.slurmjob.resync import Resync

log = structlog.get_logger(__name__)
STUCK_S = 600.0


@dataclass(frozen=True)
class Options:
    """Settings of the installation."""

    account: ServiceAccountName
    program: CompanionProgram
    health_port: int
    namespaces: Sequence[str] = ()
    host_paths: Sequence[str] = ()
    endpoints: EndpointRules = field(default_factory=EndpointRules)
    approve_serving: bool = False
    """Whether it approves the serving certificates that resourced requests."""


class Operator:
    """The components and how they are connected."""

    def __init__(self, objects: ObjectClient, options: Options) -> None:
        self._objects = objects
        self._options = options
        self.metrics = OperatorMetrics()
        writer = StatusWriter(objects, self.metrics.writes)
        self.cache = ObjectCache()
        links = RedboxLinks()
        self.reconciler = Reconciler(
            writer, self.cache, links, options.program, self.metrics, host_paths=options.host_paths
        )
        self.clusters = SlurmClusters(
            writer,
            options.account,
            self.cache,
            links,
            wake_uid=self.reconciler.wake_uid,
            wake_cluster=self.reconciler.wake_cluster,
            limited=bool(options.namespaces),
            endpoints=options.endpoints,
        )
        self.resync = Resync(objects, self.reconciler, self.clusters, self.metrics, options.namespaces)
        self._watch_read_at: float | None = None
        self.process = LeaderProcess(
            Lease(objects, options.account.namespace, FIELD_MANAGER),
            self.metrics.registry,
            options.health_port,
            unready=self.unready,
            unhealthy=self.unhealthy,
        )
        gauges = StateGauges(
            phases=lambda: [job.phase for job in self.cache.jobs.values()],
            reachable=lambda: {name: bool(link.reachable) for name, link in links.by_name.items()},
            waiting=lambda: len(self.reconciler.queue),
        )
        self.metrics.registry.register(gauges)

    def unready(self) -> str | None:
        """Why the leader is not ready."""
        return None if self.resync.done_once else "the first resync has not finished"

    def unhealthy(self) -> str | None:
        """Why it should be restarted."""
        idle = self.resync.idle_s()
        if idle > STUCK_S:
            return f"no resync has begun for {idle:.0f} s"
        silent = monotonic() - self._watch_read_at if self._watch_read_at is not None else 0.0
        return f"no watch has shown anything for {silent:.0f} s" if silent > STUCK_S else None

    def _watch_read(self) -> None:
        self._watch_read_at = monotonic()

    async def run(self) -> None:
        """Acquire the Lease, and work until cancelled."""
        await self.process.run(self._work)

    async def _work(self) -> None:
        namespaces = self._options.namespaces
        log.info("watching", namespaces=list(namespaces) or "all")
        async with asyncio.TaskGroup() as group:
            components = [self.clusters.run(), self.resync.run(), self.reconciler.run()]
            if self._options.approve_serving:
                metrics = ControllerMetrics(self.metrics.registry)
                approval = ServingApproval(self._objects, self._options.account.namespace)
                components.append(run_controllers([approval.controller(metrics)]))
            tasks = [group.create_task(component) for component in components]
            self._watch_read()  # kopf begins now
            await kopf.operator(
                registry=registry_for(self.reconciler, self.clusters, self.resync.request, self._watch_read),
                settings=settings_for(namespaces),
                standalone=True,
                clusterwide=not namespaces,
                namespaces=list(namespaces),
            )
            for task in tasks:
                task.cancel()


async def run_operator(options: Options) -> None:
    """Run until SIGTERM."""
    await run_until_sigterm(FIELD_MANAGER, lambda objects: Operator(objects, options).run())
