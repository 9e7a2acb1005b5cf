"""Reconciles all Nodes with what the SlurmClusters' partitions demand, whenever either changes.

Every reconciliation starts from the full state: nothing is carried over but the record of what was applied.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping

import structlog
from prometheus_client import CollectorRegistry, Gauge

from redbox_kube.api.informer import Informer
from redbox_kube.api.objects import ObjectClient, ResourcePath
from redbox_resourced.nodes.desired import (
    DesiredNode,
    desired_nodes,
    desired_nodes_of_deleted,
    desired_nodes_of_invalid,
)
from redbox_resourced.nodes.gateways import GatewayNodes, advertised_by_cluster
from redbox_resourced.nodes.leases import NodeLeases
from redbox_resourced.nodes.limit_events import NodeLimitEvents
from redbox_resourced.nodes.node_view import NodeView, managed_node
from redbox_resourced.nodes.virtual_nodes import VirtualNodes
from redbox_resourced.partitions.overrides import OverridesFile
from redbox_resourced.partitions.slurmclusters import ClusterRegistry

log = structlog.get_logger(__name__)
RESYNC_S = 10.0
PAUSE_S = 1.0
"""Between two reconciliations, so that a burst of events causes one and not one each."""


class NodeReconciler:
    """Virtual nodes, gateways and node Leases."""

    def __init__(
        self,
        objects: ObjectClient,
        clusters: ClusterRegistry,
        *,
        overrides: OverridesFile,
        virtual: VirtualNodes,
        gateways: GatewayNodes,
        node_limit: int,
        registry: CollectorRegistry,
    ) -> None:
        self._clusters = clusters
        self._woken = asyncio.Event()
        clusters.on_change.append(self._woken.set)
        self._nodes = Informer(
            objects, ResourcePath("Node"), reduced=managed_node, on_change=lambda _: self._woken.set()
        )
        self._leases = NodeLeases(objects, self._leased_nodes)
        self._overrides = overrides
        self._virtual = virtual
        self._gateways = gateways
        self._node_limit = node_limit
        self._metrics = ResourcedMetrics(registry)
        self._limit_events = NodeLimitEvents(objects)
        self._without_node: dict[str, int] = {}

    @property
    def unready(self) -> str | None:
        if not self._clusters.synced:
            return "the SlurmClusters are not listed yet"
        return None if self._nodes.listed.is_set() else "the Nodes are not listed yet"

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._leases.run())
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RESYNC_S):
                        await self._woken.wait()
                self._woken.clear()
                if self.unready is None:
                    await self._reconcile()
                await asyncio.sleep(PAUSE_S)

    def _leased_nodes(self) -> Collection[NodeView]:
        return [node for node in self._nodes.items.values() if node.is_virtual and not node.is_being_deleted]

    async def _reconcile(self) -> None:
        if self._overrides.reload() and self._overrides.fault:
            log.error("overrides not used", fault=self._overrides.fault)
        nodes = {node.name: node for node in self._nodes.items.values()}
        await self._virtual.reconcile(self._desired(nodes.values()), nodes)
        clusters = self._clusters.followed
        advertised = advertised_by_cluster(clusters, self._clusters.invalid, self._overrides.current)
        await self._gateways.reconcile([node for node in nodes.values() if not node.is_virtual], advertised)
        for name, followed in clusters.items():
            await self._limit_events.report(
                followed.cluster, self._without_node.get(name, 0), self._node_limit
            )
        problems = len(self._virtual.problems) + len(self._gateways.problems)
        self._metrics.update(self._clusters, self._without_node, problems=problems)

    def _desired(self, nodes: Iterable[NodeView]) -> list[DesiredNode]:
        virtual = [node for node in nodes if node.is_virtual]
        desired: list[DesiredNode] = []
        for name, followed in self._clusters.followed.items():
            of_cluster, self._without_node[name] = desired_nodes(
                followed, virtual, self._overrides.current, self._node_limit
            )
            desired += of_cluster
        for name, why in self._clusters.invalid.items():
            desired += desired_nodes_of_invalid(name, why, virtual)
        return desired + desired_nodes_of_deleted(self._clusters.names, virtual)


class ResourcedMetrics:
    """Gauges for Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        by_cluster = ["cluster"]
        self._partitions = Gauge(
            "redbox_resourced_partitions", "Partitions that red-box named.", by_cluster, registry=registry
        )
        self._reachable = Gauge(
            "redbox_resourced_redbox_reachable", "1 where red-box answers.", by_cluster, registry=registry
        )
        self._without_node = Gauge(
            "redbox_resourced_partitions_without_node",
            "Partitions beyond the number of virtual nodes allowed.",
            by_cluster,
            registry=registry,
        )
        self._problems = Gauge(
            "redbox_resourced_node_problems", "Nodes that could not be updated.", registry=registry
        )
        self._labelled: set[str] = set()

    def update(self, clusters: ClusterRegistry, without_node: Mapping[str, int], *, problems: int) -> None:
        """Set all gauges, and remove those of SlurmClusters that no longer exist."""
        for deleted in self._labelled - clusters.followed.keys():
            self._labelled.discard(deleted)
            for gauge in (self._partitions, self._reachable, self._without_node):
                gauge.remove(deleted)
        for name, followed in clusters.followed.items():
            self._partitions.labels(name).set(len(followed.partitions))
            self._reachable.labels(name).set(not followed.fault)
            self._without_node.labels(name).set(without_node.get(name, 0))
            self._labelled.add(name)
        self._problems.set(problems)
