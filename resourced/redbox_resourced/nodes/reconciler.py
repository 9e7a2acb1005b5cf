"""Looks at clusters and nodes whenever either changed, and has nodes say what clusters offer.

Every look is the whole truth anew: nothing is carried from one to the next but what was said of which node.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping

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
LOOK_EVERY_S = 10.0
PAUSE_S = 1.0
"""Between two looks, so that a storm of events is one look and not one each."""


class NodeReconciler:
    """All that resourced says of nodes."""

    def __init__(
        self,
        objects: ObjectClient,
        clusters: ClusterRegistry,
        *,
        overrides: OverridesFile,
        virtual: VirtualNodes,
        gateways: GatewayNodes,
        most_nodes: int,
        registry: CollectorRegistry,
    ) -> None:
        self._clusters = clusters
        clusters.changed.append(self._wake)
        self._nodes = Informer(
            objects, ResourcePath("Node"), reduced=managed_node, told=lambda _: self._wake()
        )
        self._heartbeats = NodeLeases(objects, self._virtual_nodes)
        self._overrides = overrides
        self._virtual = virtual
        self._gateways = gateways
        self._most_nodes = most_nodes
        self._metrics = ResourcedMetrics(registry)
        self._told = NodeLimitEvents(objects)
        self._left_out: dict[str, int] = {}
        self._woken = asyncio.Event()

    @property
    def unready(self) -> str | None:
        """What is not known yet."""
        if not self._clusters.settled:
            return "the SlurmClusters are not known yet"
        return None if self._nodes.listed.is_set() else "the Nodes are not known yet"

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._heartbeats.run())
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await self._woken.wait()
                self._woken.clear()
                if self.unready is None:
                    await self._look()
                await asyncio.sleep(PAUSE_S)

    def _wake(self) -> None:
        self._woken.set()

    def _virtual_nodes(self) -> Collection[NodeView]:
        return [node for node in self._nodes.items.values() if node.is_virtual and not node.is_being_deleted]

    async def _look(self) -> None:
        if self._overrides.reload() and self._overrides.fault:
            log.error("overrides not used", fault=self._overrides.fault)
        nodes = {node.name: node for node in self._nodes.items.values()}
        wishes = self._wishes(nodes)
        await self._virtual.settle(wishes, nodes)
        offers = advertised_by_cluster(self._clusters.followed, self._clusters.unusable, self._overrides.now)
        await self._gateways.settle([node for node in nodes.values() if not node.is_virtual], offers)
        for name, followed in tuple(self._clusters.followed.items()):
            await self._told.tell(followed.cluster, self._left_out.get(name, 0), self._most_nodes)
        self._metrics.tell(
            self._clusters,
            self._left_out,
            problems=len(self._virtual.problems) + len(self._gateways.problems),
        )

    def _wishes(self, nodes: Mapping[str, NodeView]) -> list[DesiredNode]:
        virtual = [node for node in nodes.values() if node.is_virtual]
        wishes: list[DesiredNode] = []
        for name, followed in self._clusters.followed.items():
            wished, left_out = desired_nodes(followed, virtual, self._overrides.now, self._most_nodes)
            wishes += wished
            self._left_out[name] = left_out
        for name, why in self._clusters.unusable.items():
            wishes += desired_nodes_of_invalid(name, why, virtual)
        return wishes + desired_nodes_of_deleted(self._clusters.names, virtual)


class ResourcedMetrics:
    """What Prometheus is told of it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        by_cluster = ["cluster"]
        self._partitions = Gauge(
            "redbox_resourced_partitions", "Partitions that red-box named.", by_cluster, registry=registry
        )
        self._reachable = Gauge(
            "redbox_resourced_redbox_reachable", "1 where red-box answers.", by_cluster, registry=registry
        )
        self._left_out = Gauge(
            "redbox_resourced_partitions_without_node",
            "Partitions beyond the number of virtual nodes allowed.",
            by_cluster,
            registry=registry,
        )
        self._problems = Gauge(
            "redbox_resourced_node_problems", "Nodes that are not as they should be.", registry=registry
        )
        self._said: set[str] = set()

    def tell(self, clusters: ClusterRegistry, left_out: Mapping[str, int], *, problems: int) -> None:
        """As things are now."""
        for gone in self._said - clusters.followed.keys():
            self._said.discard(gone)
            for gauge in (self._partitions, self._reachable, self._left_out):
                gauge.remove(gone)
        for name, followed in clusters.followed.items():
            self._partitions.labels(name).set(len(followed.partitions))
            self._reachable.labels(name).set(not followed.fault)
            self._left_out.labels(name).set(left_out.get(name, 0))
            self._said.add(name)
        self._problems.set(problems)
