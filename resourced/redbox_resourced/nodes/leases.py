"""Tells Kubernetes that virtual nodes are served: a Lease for each, renewed well before it lapses.

The renewals are spread over a round, so that 200 nodes are twenty small requests a second and no burst.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from datetime import UTC, datetime

from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath
from redbox_kube.names import LABEL_VIRTUAL
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.nodes.node_view import NodeView
from redbox_resourced.nodes.virtual_nodes import LEASE_API, LEASES

EVERY_S = 10.0
LASTS_S = 40
TICK_S = 0.25
AT_ONCE = 64  # where an answer takes a second, the last of 200 is still in time


class NodeLeases:
    """Renews the Leases of whatever nodes there are."""

    def __init__(self, objects: ObjectClient, nodes: Callable[[], Collection[NodeView]]) -> None:
        self._objects = objects
        self._nodes = nodes
        self._leased: dict[str, str] = {}  # node -> its uid, where its Lease names that uid as its owner
        self._due: dict[str, float] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._missed = GroupedWarnings(
            "heartbeats missed", gathers_s=EVERY_S
        )  # a round: all nodes that miss it

    async def run(self) -> None:
        """Beat until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                now, nodes = loop.time(), self._nodes()
                self._forget_all_but({node.name for node in nodes})
                for node in nodes:
                    due = self._due.get(node.name)
                    if due is None or due <= now:
                        group.create_task(self._beat(node))
                        # After its first one a node finds its own place in the round.
                        self._due[node.name] = now + EVERY_S * (random.random() if due is None else 1.0)  # noqa: S311
                await asyncio.sleep(TICK_S)

    async def _beat(self, node: NodeView) -> None:
        where = ResourcePath("Lease", node.name, LEASES, LEASE_API)
        try:
            async with asyncio.timeout(EVERY_S), self._at_once:
                if self._leased.get(node.name) != node.uid or not await self._renew(where):
                    await self._claim(where, node)
        except (ApiError, TimeoutError) as error:
            self._missed.failed(node.name, error)
        else:
            self._missed.mended(node.name)

    def _forget_all_but(self, names: set[str]) -> None:
        for gone in self._due.keys() - names:
            del self._due[gone]
            self._leased.pop(gone, None)
            self._missed.mended(gone)

    async def _renew(self, where: ResourcePath) -> bool:
        return await self._objects.merge(where, {"spec": {"renewTime": _now()}}) is not None

    async def _claim(self, where: ResourcePath, node: NodeView) -> None:
        """Make the Lease, or have the one that is there belong to this Node."""
        lease = _lease(node)
        if await self._objects.create(where.all(), lease) is None:
            await self._objects.merge(where, {"metadata": lease["metadata"], "spec": lease["spec"]})
        self._leased[node.name] = node.uid


def _lease(node: NodeView) -> Object:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    return {
        "apiVersion": LEASE_API,
        "kind": "Lease",
        "metadata": {
            "name": node.name,
            "namespace": LEASES,
            "labels": {LABEL_VIRTUAL: "true"},  # the policy redbox-leases lets us write no other
            "ownerReferences": [owner],
        },
        "spec": {"holderIdentity": node.name, "leaseDurationSeconds": LASTS_S, "renewTime": _now()},
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
