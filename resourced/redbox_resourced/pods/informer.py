"""The pods bound to our virtual nodes, whoever made them.

One watch for each node, as a kubelet has one: the API server finds a node's pods by index, which it cannot
do for "any of ours", and nothing of other nodes' pods is sent here. 200 of them cost 63 MiB, and no CPU when
idle. The nodes are those that exist with our label, so that pods are served also on a node whose partition is
gone from Slurm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.names import LABEL_VIRTUAL
from redbox_resourced.nodes.node_view import PROVIDER
from redbox_resourced.pods.pod_view import BoundPod, read_pod
from redbox_resourced.pods.submission import key_of


def _ours(node: Object) -> bool | None:
    """A kubelet may put our label on its own Node: its pods have containers, and are not ours to let go."""
    return str(node.get("spec", {}).get("providerID", "")).startswith(PROVIDER) or None


class PodInformer:
    """Every pod on a virtual node, by namespace and name; `changed` is told each place that changed."""

    def __init__(
        self, objects: ObjectClient, changed: Callable[[Place], None], gone: Callable[[BoundPod], None]
    ) -> None:
        self.pods: dict[Place, BoundPod] = {}
        self.by_key: dict[str, set[Place]] = {}
        """Pods that have not ended, by their jobs' keys."""
        self._objects = objects
        self._changed = changed
        self._gone = gone
        self._mirrors: dict[str, tuple[Informer, asyncio.Task[None]]] = {}
        self._moved: set[str] = set()
        self._wake = asyncio.Event()

    @property
    def settled(self) -> bool:
        """Whether the pods of all nodes are known."""
        return self._nodes_known and all(mirror.listed.is_set() for mirror, _ in self._mirrors.values())

    def on(self, node: str) -> Collection[BoundPod]:
        """Those of one node."""
        mirror, _ = self._mirrors.get(node, (None, None))
        return mirror.items.values() if mirror else ()

    _nodes_known = False

    async def run(self) -> None:
        """Follow nodes and their pods until cancelled."""
        selection = {"labelSelector": LABEL_VIRTUAL}
        nodes = Informer(
            self._objects, ResourcePath("Node"), selection=selection, reduced=_ours, told=self._nodes_moved
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run())
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._moved:
                    await self._settle(self._moved.pop(), nodes, group)
                self._nodes_known = True

    def _nodes_moved(self, places: set[Place]) -> None:
        self._moved |= {name for _, name in places}
        self._wake.set()

    async def _settle(self, node: str, nodes: Informer, group: asyncio.TaskGroup) -> None:
        exists = ("", node) in nodes.items
        if exists and node not in self._mirrors:
            selection = {"fieldSelector": f"spec.nodeName={node}"}
            mirror = Informer(
                self._objects,
                ResourcePath("Pod"),
                selection=selection,
                reduced=read_pod,
                told=partial(self._pods_moved, node),
            )
            self._mirrors[node] = mirror, group.create_task(mirror.run())
        elif not exists and node in self._mirrors:
            mirror, task = self._mirrors.pop(node)
            task.cancel()
            await asyncio.wait({task})
            for place in mirror.items:
                self._put(place, None)

    def _pods_moved(self, node: str, places: set[Place]) -> None:
        mirror, _ = self._mirrors[node]
        for place in places:
            self._put(place, mirror.items.get(place))

    def _put(self, place: Place, pod: BoundPod | None) -> None:
        known = self.pods.pop(place, None)
        if known is not None:
            self._leave(place, known)
            if pod is None or pod.uid != known.uid:
                self._gone(known)
        if pod is not None:
            self.pods[place] = pod
            if pod.controller is not None and not pod.has_ended:
                self.by_key.setdefault(key_of(pod), set()).add(place)
        self._changed(place)

    def _leave(self, place: Place, pod: BoundPod) -> None:
        places = self.by_key.get(key_of(pod), set())
        places.discard(place)
        if not places:
            self.by_key.pop(key_of(pod), None)
