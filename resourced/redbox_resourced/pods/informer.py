"""The pods bound to virtual nodes, of any owner.

One watch for each node, as a kubelet has it: the API server indexes pods by node, but has no index for "any
virtual node", and pods of other nodes are not sent here. 200 watches cost 63 MiB, and no CPU when idle.
Watched are the Nodes that exist with our label, so that pods are served also on a node whose partition no
longer exists in Slurm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from redbox_clusters.names import LABEL_VIRTUAL, PROVIDER
from redbox_kube.api import kinds
from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_resourced.pods.pod_view import BoundPod, read_pod


def _virtual_since(node: Object) -> str | None:
    """When it was created; a kubelet can set our label on its own Node, whose pods are not ours."""
    if not str(node.get("spec", {}).get("providerID", "")).startswith(PROVIDER):
        return None
    return str(node["metadata"].get("creationTimestamp", ""))


class PodInformer:
    """Every pod on a virtual node, by namespace and name."""

    def __init__(
        self,
        objects: ObjectClient,
        on_change: Callable[[Place], None],
        on_delete: Callable[[BoundPod], None],
    ) -> None:
        self.pods: dict[Place, BoundPod] = {}
        self.by_key: dict[str, set[Place]] = {}
        """Pods that have not ended, by their jobs' keys."""
        self._objects = objects
        self._on_change = on_change
        self._on_delete = on_delete
        self._informers: dict[str, tuple[Informer, asyncio.Task[None]]] = {}
        self._nodes = Informer(
            objects,
            ResourcePath(kinds.NODE),
            selection={"labelSelector": LABEL_VIRTUAL},
            reduced=_virtual_since,
            on_change=self._nodes_changed,
        )
        self._group = asyncio.TaskGroup()

    @property
    def synced(self) -> bool:
        """Whether the pods of all nodes are listed."""
        informers = (self._nodes, *(informer for informer, _ in self._informers.values()))
        return all(informer.listed.is_set() for informer in informers)

    def node_since(self, node: str) -> str:
        """When the virtual node was created; empty where it does not exist."""
        return str(self._nodes.items.get(("", node), ""))

    def on(self, node: str) -> Collection[BoundPod]:
        informer, _ = self._informers.get(node, (None, None))
        return informer.items.values() if informer else ()

    async def run(self) -> None:
        async with self._group:
            await self._nodes.run()

    def _nodes_changed(self, places: set[Place]) -> None:
        """Start or stop the watches of their pods."""
        for place in places:
            exists, node = place in self._nodes.items, place[1]
            if exists and node not in self._informers:
                informer = Informer(
                    self._objects,
                    ResourcePath(kinds.POD),
                    selection={"fieldSelector": f"spec.nodeName={node}"},
                    reduced=read_pod,
                    on_change=self._pods_changed,
                )
                self._informers[node] = informer, self._group.create_task(informer.run())
            elif not exists and node in self._informers:
                informer, task = self._informers.pop(node)
                task.cancel()
                self._pods_changed(set(informer.items))

    def _pods_changed(self, places: set[Place]) -> None:
        for place in places:
            self._store(place, self._newest(place))

    def _newest(self, place: Place) -> BoundPod | None:
        """Of one name, where it was made again on another node: watches of two nodes keep no order."""
        informers = (informer for informer, _ in self._informers.values())
        found: list[BoundPod] = [informer.items[place] for informer in informers if place in informer.items]
        return max(found, key=lambda pod: (pod.created_at, not pod.is_being_deleted), default=None)

    def _store(self, place: Place, pod: BoundPod | None) -> None:
        old = self.pods.pop(place, None)
        if old is not None:
            places = self.by_key.get(old.key, set())
            places.discard(place)
            if not places:
                self.by_key.pop(old.key, None)
            if pod is None or pod.uid != old.uid:
                self._on_delete(old)
        if pod is not None:
            self.pods[place] = pod
            if pod.key and not pod.has_ended:
                self.by_key.setdefault(pod.key, set()).add(place)
        self._on_change(place)
