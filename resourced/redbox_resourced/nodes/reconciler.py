"""Reconciles all Nodes with what the SlurmClusters' partitions demand, whenever either changes.

Every reconciliation starts from the full state: nothing is carried over but the record of what was applied.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from redbox_kube.api import kinds
from redbox_kube.api.informer import Informer
from redbox_kube.api.objects import ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
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
            objects, ResourcePath(kinds.NODE), reduced=managed_node, on_change=lambda _: self._woken.set()
        )
        self._leases = NodeLeases(objects, self._leased_nodes)
        self._overrides = overrides
        self._virtual = virtual
        self._gateways = gateways
        self._node_limit = node_limit
        self._limit_events = NodeLimitEvents(objects)
        self._without_node: dict[str, int] = {}  # the metrics read this very dict
        warnings = (virtual.warnings, gateways.warnings)
        registry.register(ResourcedMetrics(clusters, self._without_node, warnings))

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
        await self._virtual.reconcile(self._desired({**self._virtual.existing, **nodes}.values()), nodes)
        clusters = self._clusters.followed
        advertised = advertised_by_cluster(clusters, self._clusters.invalid, self._overrides.current)
        await self._gateways.reconcile([node for node in nodes.values() if not node.is_virtual], advertised)
        for name, followed in clusters.items():
            await self._limit_events.report(
                followed.cluster, self._without_node.get(name, 0), self._node_limit
            )

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


@dataclass(eq=False)
class ResourcedMetrics(Collector):
    """Gauges for Prometheus, computed when they are read."""

    clusters: ClusterRegistry
    without_node: Mapping[str, int]
    warnings: Iterable[GroupedWarnings]

    def collect(self) -> Iterator[Metric]:
        partitions, reachable, without_node = (
            GaugeMetricFamily(f"redbox_resourced_{name}", text, labels=["cluster"])
            for name, text in (
                ("partitions", "Partitions that red-box named."),
                ("redbox_reachable", "1 where red-box answers."),
                ("partitions_without_node", "Partitions beyond the number of virtual nodes allowed."),
            )
        )
        for name, followed in self.clusters.followed.items():
            partitions.add_metric([name], len(followed.partitions))
            reachable.add_metric([name], not followed.fault)
            without_node.add_metric([name], self.without_node.get(name, 0))
        yield from (partitions, reachable, without_node)
        problems = sum(len(warnings.failing) for warnings in self.warnings)
        yield GaugeMetricFamily(
            "redbox_resourced_node_problems", "Nodes that could not be updated.", value=problems
        )
