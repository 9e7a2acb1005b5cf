"""Creates, updates, taints and deletes virtual nodes until they are as `desired` demands.

A foreign Node of the same name is left alone and reported as a problem. A virtual node that was deleted by
hand is created again at once: Kubernetes deletes the pods of a Node that does not exist, after 40 s. That
holds also where its partition is unknown or excluded now, as long as a pod of a job is on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from operator import itemgetter

import structlog

from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.nodes.desired import DesiredNode
from redbox_resourced.nodes.manifest import (
    KubeletAddress,
    ServingStatus,
    availability_configurations,
    capacity_configurations,
    identity_configurations,
    new_node,
    provider_id,
    serving_configurations,
    taints,
)
from redbox_resourced.nodes.node_view import NodeView, read_node
from redbox_resourced.nodes.server_side_apply import ApplyConfiguration, NodeApplier

log = structlog.get_logger(__name__)
WRITES_AT_ONCE = 8
KEY_AND_EFFECT = itemgetter("key", "effect")
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
LEASES = "kube-node-lease"


@dataclass
class VirtualNodes:
    """Writes desired nodes."""

    objects: ObjectClient
    applier: NodeApplier
    address: KubeletAddress
    serving: Callable[[], ServingStatus | None]
    """None: the conditions about it stay as they are."""
    has_job: Callable[[Object], bool]
    """Whether it is a pod of a job. Other pods, those of DaemonSets among them, need no node of ours."""
    gone_after_s: float
    old_keys: bool
    existing: dict[str, NodeView] = field(default_factory=dict)
    """Virtual nodes that exist, or that somebody else has deleted since the last reconciliation."""
    kubernetes_version: str = ""
    warnings: GroupedWarnings = field(default_factory=lambda: GroupedWarnings("virtual node not updated"))
    _redbox_version: str = field(default_factory=lambda: version("red-box"))  # each call parses a file
    _missing_since: dict[str, float] = field(default_factory=dict)

    async def reconcile(self, desired: Iterable[DesiredNode], nodes: Mapping[str, NodeView]) -> None:
        """Update all nodes; failures are retried at the next reconciliation."""
        self.existing |= {name: node for name, node in nodes.items() if node.is_virtual}
        by_name = {node.node: node for node in desired}
        self._missing_since = {name: at for name, at in self._missing_since.items() if name in by_name}
        for name in self.warnings.failing.keys() - by_name.keys():
            self.warnings.recovered(name)
        at_once = asyncio.Semaphore(WRITES_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for name, node in by_name.items():
                group.create_task(self._try_update(node, nodes.get(name), at_once))

    async def _try_update(
        self, desired: DesiredNode, node: NodeView | None, at_once: asyncio.Semaphore
    ) -> None:
        async with at_once:
            try:
                problem = await self._update(desired, node)
            except ApiError as error:
                problem = str(error)
        if problem:
            self.warnings.failed(desired.node, problem)
        else:
            self.warnings.recovered(desired.node)

    async def _update(self, desired: DesiredNode, node: NodeView | None) -> str:
        """The problem that prevents the update, if any."""
        if node is None and (desired.advertised is not None or await self._has_unfinished_pod(desired.node)):
            node = await self._create(desired)
        if node is None:
            self.existing.pop(desired.node, None)
            return ""
        if node.provider_id != provider_id(desired.cluster, desired.partition):
            return f"a Node {node.name} exists that is not ours: delete it, or leave the partition out"
        tainted = await self._update_taints(desired, node)
        if tainted is None:
            return ""  # changed meanwhile: the next reconciliation sees it
        await self.applier.apply(tainted, self._configurations(desired, tainted))
        if not desired.delete:
            self._missing_since.pop(node.name, None)
        elif self._is_due(desired) and not await self._has_unfinished_pod(node.name):
            await self._delete(node)
        return ""

    async def _create(self, desired: DesiredNode) -> NodeView | None:
        path = ResourcePath(kinds.NODE, desired.node)
        created = await self.objects.create(path.all(), new_node(desired.cluster, desired.partition))
        if created is not None:
            log.info("virtual node created", node=desired.node, partition=desired.partition)
        node = created or await self.objects.get(path)
        if node is None:
            return None
        view = read_node(node)
        if view.is_virtual:
            self.existing[view.name] = view
        return view

    async def _update_taints(self, desired: DesiredNode, node: NodeView) -> NodeView | None:
        """The Node with its taints; None where its resourceVersion is no longer the expected one."""
        wanted = taints(node.taints, unreachable=bool(desired.unreachable))
        if set(map(KEY_AND_EFFECT, wanted)) == set(map(KEY_AND_EFFECT, node.taints)):
            return node
        body = {"metadata": {"resourceVersion": node.version}, "spec": {"taints": wanted}}
        merged = await self.objects.merge(ResourcePath(kinds.NODE, node.name), body)
        return None if merged is None else read_node(merged)

    def _configurations(self, desired: DesiredNode, node: NodeView) -> list[ApplyConfiguration]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        configurations = identity_configurations(desired.cluster, desired.partition)
        if (serving := self.serving()) is not None:
            configurations += serving_configurations(node, serving, desired.unreachable, self.address, now)
        if desired.availability is not None:
            configurations += availability_configurations(node, desired.availability, now)
        if desired.advertised is not None:
            configurations += capacity_configurations(
                desired.advertised,
                desired.slurm_version,
                f"{self.kubernetes_version}+redbox.{self._redbox_version}",
                old_keys=self.old_keys,
                has_room=desired.has_room,
            )
        return configurations

    def _is_due(self, desired: DesiredNode) -> bool:
        if not desired.after_grace:
            return True
        now = asyncio.get_running_loop().time()
        return now - self._missing_since.setdefault(desired.node, now) >= self.gone_after_s

    async def _has_unfinished_pod(self, node_name: str) -> bool:
        """Of a job only: pods of DaemonSets never finish."""
        selection = {"fieldSelector": f"spec.nodeName={node_name},{UNFINISHED}"}
        async for page, _ in self.objects.pages(ResourcePath(kinds.POD), selection):
            if any(map(self.has_job, page)):
                return True
            del page  # before the next one is read
        return False

    async def _delete(self, node: NodeView) -> None:
        await self.objects.delete(ResourcePath(kinds.NODE, node.name), uid=node.uid)
        await self.objects.delete(ResourcePath(kinds.LEASE, node.name, LEASES))
        self.applier.forget(node.name)
        self.existing.pop(node.name, None)
        log.info("virtual node deleted", node=node.name)
