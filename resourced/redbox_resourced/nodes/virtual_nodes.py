"""Keeps the virtual nodes as they should be: made, described, tainted, and deleted when nobody needs them.

What should be is `wishes`' to say. A Node of the same name that is not ours is left alone, and that is said.
One that others delete is made again at once, so that its companions go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version

import structlog

from redbox_kube.api.objects import ApiError, ObjectClient, ResourcePath
from redbox_kube.names import LABEL_JOB_UID
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.nodes.desired import DesiredNode
from redbox_resourced.nodes.manifest import (
    KubeletAddress,
    NodeVersions,
    availability_configurations,
    capacity_configurations,
    identity_configurations,
    new_node,
    provider_id,
    serving_configurations,
    taints,
)
from redbox_resourced.nodes.node_view import NodeView, read_node
from redbox_resourced.nodes.readiness import NodeReadiness
from redbox_resourced.nodes.server_side_apply import ApplyConfiguration, NodeApplier

log = structlog.get_logger(__name__)
WRITES_AT_ONCE = 8
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
LEASES = "kube-node-lease"
LEASE_API = "coordination.k8s.io/v1"


class VirtualNodes:
    """Writes what is wished."""

    def __init__(
        self,
        objects: ObjectClient,
        claims: NodeApplier,
        address: KubeletAddress,
        service: NodeReadiness,
        *,
        gone_after_s: float,
        old_keys: bool,
    ) -> None:
        self.kubernetes = ""
        """The API server's version."""
        self.problems: dict[str, str] = {}
        """By node: what keeps it from being as it should."""
        self._objects = objects
        self._claims = claims
        self._address = address
        self._service = service
        self._own_version = version("red-box")  # each look at metadata parses a file
        self._gone_after_s = gone_after_s
        self._old_keys = old_keys
        self._lacked_since: dict[str, float] = {}
        self._troubles = GroupedWarnings("virtual nodes not as they should be")

    async def settle(self, wishes: Iterable[DesiredNode], nodes: Mapping[str, NodeView]) -> None:
        """One look at all of them; what fails is tried again at the next."""
        wished = {wish.node: wish for wish in wishes}
        self._lacked_since = {name: at for name, at in self._lacked_since.items() if name in wished}
        for unwished in self.problems.keys() - wished.keys():
            self._is_well(unwished)
        at_once = asyncio.Semaphore(WRITES_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for wish in wished.values():
                group.create_task(self._try(wish, nodes.get(wish.node), at_once))

    async def _try(self, wish: DesiredNode, node: NodeView | None, at_once: asyncio.Semaphore) -> None:
        async with at_once:
            try:
                problem = await self._fulfil(wish, node)
            except ApiError as error:
                problem = str(error)
        if problem:
            self.problems[wish.node] = problem
            self._troubles.failed(wish.node, problem)
        else:
            self._is_well(wish.node)

    def _is_well(self, node: str) -> None:
        self.problems.pop(node, None)
        self._troubles.mended(node)

    async def _fulfil(self, wish: DesiredNode, node: NodeView | None) -> str:
        """What is wrong, or nothing."""
        if node is None and wish.offer is not None:
            node = await self._make(wish)
        if node is None:
            return ""
        expected = provider_id(wish.cluster, wish.partition)
        if node.provider_id != expected:
            return f"a Node {node.name} exists that is not ours: delete it, or leave the partition out"
        tainted = await self._retaint(wish, node)
        if tainted is None:
            return ""  # it moved: the next look sees it
        await self._claims.keep(tainted, self._said_of(wish, tainted))
        if not wish.delete:
            self._lacked_since.pop(node.name, None)
        elif self._is_due(wish) and not await self._is_needed(node):
            await self.remove(node)
        return ""

    async def _make(self, wish: DesiredNode) -> NodeView | None:
        where = ResourcePath("Node", wish.node)
        made = await self._objects.create(where.all(), new_node(wish.cluster, wish.partition))
        if made is not None:
            log.info("virtual node made", node=wish.node, partition=wish.partition)
        found = made or await self._objects.get(where)
        return None if found is None else read_node(found)

    async def _retaint(self, wish: DesiredNode, node: NodeView) -> NodeView | None:
        """The node as it is then; None where it is not the version that was seen."""
        wanted = taints(node.taints, unreachable=bool(wish.unreachable))
        if {(one["key"], one["effect"]) for one in wanted} == {
            (one["key"], one["effect"]) for one in node.taints
        }:
            return node
        body = {"metadata": {"resourceVersion": node.version}, "spec": {"taints": wanted}}
        merged = await self._objects.merge(ResourcePath("Node", node.name), body)
        return None if merged is None else read_node(merged)

    def _said_of(self, wish: DesiredNode, node: NodeView) -> list[ApplyConfiguration]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        claims = identity_configurations(wish.cluster, wish.partition)
        served = self._service.now()
        if served is not None:
            claims += serving_configurations(node, served, wish.unreachable, self._address, now)
        if wish.standing is not None:
            claims += availability_configurations(node, wish.standing, now)
        if wish.offer is not None:
            versions = NodeVersions(self.kubernetes, self._own_version, wish.slurm)
            claims += capacity_configurations(wish.offer, versions, old_keys=self._old_keys)
        return claims

    def _is_due(self, wish: DesiredNode) -> bool:
        if wish.is_sure:
            return True
        now = asyncio.get_running_loop().time()
        return now - self._lacked_since.setdefault(wish.node, now) >= self._gone_after_s

    async def _is_needed(self, node: NodeView) -> bool:
        """Whether a job's pod that has not ended is bound to it; DaemonSets' pods never end."""
        selection = {
            "fieldSelector": f"spec.nodeName={node.name},{UNFINISHED}",
            "labelSelector": LABEL_JOB_UID,
            "limit": "1",
        }
        async for page, _ in self._objects.pages(ResourcePath("Pod"), selection):
            return bool(page)
        return False

    async def remove(self, node: NodeView) -> None:
        """The Node and its Lease."""
        await self._objects.delete(ResourcePath("Node", node.name), uid=node.uid)
        await self._objects.delete(ResourcePath("Lease", node.name, LEASES, LEASE_API))
        self._claims.forget(node.name)
        log.info("virtual node removed", node=node.name)
