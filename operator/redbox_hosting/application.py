"""The operator of hosted Slurm: its controllers, and a Lease in each namespace that it writes to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from redbox_hosting.api import names
from redbox_hosting.controllers.access.login_sets import LoginSets
from redbox_hosting.controllers.access.rest_apis import RestApis
from redbox_hosting.controllers.access.tokens import Tokens
from redbox_hosting.controllers.accountings.accountings import Accountings
from redbox_hosting.controllers.clusters.slurm_controllers import SlurmControllers
from redbox_hosting.controllers.context import DefaultImages, HostingContext, OperatorPods
from redbox_hosting.controllers.slurm_connections import SlurmConnections
from redbox_hosting.controllers.slurm_snapshots import SlurmSnapshots
from redbox_hosting.controllers.watched_kinds import HostingWatches
from redbox_hosting.controllers.workers.node_sets import NodeSets
from redbox_kube.api.objects import ObjectClient
from redbox_kube.controller.controller import Controller, run_controllers
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.controller.namespace_leases import NamespaceLeases
from redbox_kube.controller.process import run_until_sigterm
from redbox_kube.runtime.health_server import serving
from redbox_kube.status.status_writer import StatusWriter

FIELD_MANAGER = "redbox-hosting"


@dataclass(frozen=True)
class HostingOptions:
    """Settings of the installation."""

    namespaces: Sequence[str]
    operator: OperatorPods
    images: DefaultImages = field(default_factory=DefaultImages)
    reads_nodes: bool = False
    node_conditions: Sequence[str] = ()
    health_port: int = 8080


def controllers_of(context: HostingContext) -> list[Controller[Any, Any]]:
    """All of them; each reconciles the objects of one kind."""
    return [
        SlurmControllers(context).controller,
        NodeSets(context).controller,
        Accountings(context).controller,
        RestApis(context).controller,
        Tokens(context).controller,
        LoginSets(context).controller,
    ]


class HostingOperator:
    """The process: what is served by each replica, and the controllers."""

    def __init__(self, objects: ObjectClient, options: HostingOptions) -> None:
        self._options = options
        self.registry = CollectorRegistry()
        self.leases = NamespaceLeases(
            objects, options.namespaces, FIELD_MANAGER, object_format=names.OBJECT_FORMAT
        )
        writes = Counter(
            "redbox_hosting_writes",
            "Writes to the API server, by kind and verb.",
            ("kind", "verb"),
            registry=self.registry,
        )
        connections = SlurmConnections()
        self.context = HostingContext(
            writer=StatusWriter(objects, writes, why_not_delete=self.leases.why_not_delete),
            metrics=ControllerMetrics(self.registry),
            leases=self.leases,
            watches=HostingWatches(objects, options.namespaces),
            connections=connections,
            snapshots=SlurmSnapshots(connections),
            images=options.images,
            operator=options.operator,
            namespaces=options.namespaces,
            reads_nodes=options.reads_nodes,
            node_conditions=frozenset(options.node_conditions) - {"Ready"},
            registry=self.registry,
        )
        self.controllers = controllers_of(self.context)

    async def run(self) -> None:
        """Until cancelled. A replica that holds no Lease watches, and writes nothing."""
        async with (
            serving(self._options.health_port, self.registry, unready=lambda: None),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self.leases.run(self._lease_changed))
            group.create_task(self.context.snapshots.run())
            group.create_task(run_controllers(self.controllers))

    def _lease_changed(self, namespace: str) -> None:
        if self.leases.may_write(namespace):
            for controller in self.controllers:
                controller.reconcile_all(namespace)


async def run_hosting_operator(options: HostingOptions) -> None:
    """Run until SIGTERM."""
    await run_until_sigterm(FIELD_MANAGER, lambda objects: HostingOperator(objects, options).run())
