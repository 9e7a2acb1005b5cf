"""Node Leases show Kubernetes that virtual nodes are served: one for each, renewed well before it expires.

Renewals are spread over the period, so that 200 nodes are twenty small requests a second and no burst.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from datetime import UTC, datetime

from redbox_clusters.names import LABEL_VIRTUAL
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.nodes.node_view import NodeView
from redbox_resourced.nodes.virtual_nodes import LEASES

PERIOD_S = 10.0
DURATION_S = 40
TICK_S = 0.25
AT_ONCE = 64  # where an answer takes a second, the last of 200 is still in time


class NodeLeases:
    """Renews the Leases of all nodes that `nodes` returns."""

    def __init__(self, objects: ObjectClient, nodes: Callable[[], Collection[NodeView]]) -> None:
        self._objects = objects
        self._nodes = nodes
        self._owners: dict[str, str] = {}  # node -> its uid, where its Lease names that uid as its owner
        self._due: dict[str, float] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)
        # One line for a whole period: all nodes whose renewal failed in it.
        self._warnings = GroupedWarnings("node Leases not renewed", gathers_s=PERIOD_S)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                now, nodes = loop.time(), self._nodes()
                self._forget_all_but({node.name for node in nodes})
                for node in nodes:
                    due = self._due.get(node.name)
                    if due is None or due <= now:
                        group.create_task(self._renew_or_claim(node))
                        # The second renewal comes after a random part of the period: that spreads them.
                        self._due[node.name] = now + PERIOD_S * (random.random() if due is None else 1.0)  # noqa: S311
                await asyncio.sleep(TICK_S)

    async def _renew_or_claim(self, node: NodeView) -> None:
        path = ResourcePath(kinds.LEASE, node.name, LEASES)
        try:
            async with asyncio.timeout(PERIOD_S), self._at_once:
                renewal = {"spec": {"renewTime": _now()}}
                is_ours = self._owners.get(node.name) == node.uid
                if not is_ours or await self._objects.merge(path, renewal) is None:
                    await self._claim(path, node)
        except (ApiError, TimeoutError) as error:
            self._warnings.failed(node.name, error)
        else:
            self._warnings.recovered(node.name)

    def _forget_all_but(self, names: set[str]) -> None:
        for deleted in self._due.keys() - names:
            del self._due[deleted]
            self._owners.pop(deleted, None)
            self._warnings.recovered(deleted)

    async def _claim(self, path: ResourcePath, node: NodeView) -> None:
        """Create the Lease, or make the existing one belong to this Node."""
        lease = _lease(node)
        if await self._objects.create(path.all(), lease) is None:
            await self._objects.merge(path, {"metadata": lease["metadata"], "spec": lease["spec"]})
        self._owners[node.name] = node.uid


def _lease(node: NodeView) -> Object:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    return {
        "apiVersion": kinds.LEASE.api_version,
        "kind": "Lease",
        "metadata": {
            "name": node.name,
            "namespace": LEASES,
            "labels": {LABEL_VIRTUAL: "true"},  # the policy redbox-leases allows no Lease without it
            "ownerReferences": [owner],
        },
        "spec": {"holderIdentity": node.name, "leaseDurationSeconds": DURATION_S, "renewTime": _now()},
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
