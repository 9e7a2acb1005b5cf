"""The SlurmClusters that there are, and what the red-box of each says of its partitions.

Each has a task of its own, so that one that hangs holds up no other. Nothing is decided here: who publishes
partitions looks at `followed` whenever it is told of a change, and who serves a virtual node asks `of_node`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from redbox_api.client import RedboxClient
from redbox_kube.api.informer import Informer, Place, whole
from redbox_kube.api.objects import ObjectClient, ResourcePath
from redbox_kube.names import API_VERSION
from redbox_kube.node_labels import dns_label
from redbox_kube.redbox_token import RedboxToken, ServiceAccountName
from redbox_kube.slurm_cluster import Delivery, SlurmCluster
from redbox_resourced.partitions.partition_feed import PartitionFeed

log = structlog.get_logger(__name__)


class ServedNode(NamedTuple):
    """Whose virtual node it is, and who is asked for its jobs."""

    cluster: SlurmCluster
    client: RedboxClient


@dataclass
class Clusters:
    """Follows every SlurmCluster; `run` it in a TaskGroup."""

    objects: ObjectClient
    account: ServiceAccountName
    changed: list[Callable[[], None]] = field(default_factory=list)
    """Called whenever anything is known anew."""
    unusable: dict[str, str] = field(default_factory=dict)
    """Those that are written in a way that nobody can follow, and why."""
    settled: bool = False
    """Whether all SlurmClusters are known: before that, nobody can say which is gone."""
    _running: dict[str, tuple[PartitionFeed, asyncio.Task[None]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = ResourcePath("SlurmCluster", api_version=API_VERSION)
        self._mirror = Informer(self.objects, where, reduced=whole, told=self._told)
        self._moved: set[str] = set()
        self._wake = asyncio.Event()

    @property
    def names(self) -> set[str]:
        """Of all that there are, followed or not."""
        return {name for _, name in self._mirror.items}

    @property
    def followed(self) -> Mapping[str, PartitionFeed]:
        """By the SlurmCluster's name."""
        return {name: followed for name, (followed, _) in self._running.items()}

    @property
    def deliver_virtually(self) -> bool:
        """Whether any of them has its companions on virtual nodes."""
        return any(one.cluster.spec.delivery is Delivery.VIRTUAL for one, _ in self._running.values())

    def of_node(self, node_name: str) -> ServedNode | None:
        """Whose virtual node has this name; None where no SlurmCluster is known that would have it.

        It is asked at every look at a pod: what it costs must not grow with the number of partitions.
        """
        written = node_name.partition(".")[0]
        for followed, _ in self._running.values():
            if dns_label(followed.cluster.name) == written:
                return ServedNode(followed.cluster, followed.client)
        return None

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mirror.run())
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._moved:
                    await self._settle(self._moved.pop(), group)
                self.settled = True
                self._tell()

    def _tell(self) -> None:
        for listener in self.changed:
            listener()

    def _told(self, places: set[Place]) -> None:
        self._moved |= {name for _, name in places}
        self._wake.set()

    async def _settle(self, name: str, group: asyncio.TaskGroup) -> None:
        """Have the SlurmCluster followed as it is now written, or no more."""
        try:
            cluster = self._read(name)
            known, _ = self._running.get(name, (None, None))
            if cluster and known and known.adopt(cluster):
                return
            await self._forget(name)
            if cluster is not None:
                followed = PartitionFeed(cluster, self._client(cluster), self._tell)
                self._running[name] = (followed, group.create_task(followed.run()))
        except (ValueError, OSError) as error:  # ValidationError is the one, SSLError the other
            await self._forget(name)
            self.unusable[name] = f"SlurmCluster {name} cannot be used: {error}"
            log.warning("unusable", cluster=name, error=str(error))

    async def _forget(self, name: str) -> None:
        self.unusable.pop(name, None)
        if name in self._running:
            _, task = self._running.pop(name)
            task.cancel()
            await asyncio.wait({task})

    def _read(self, name: str) -> SlurmCluster | None:
        raw = self._mirror.items.get(("", name))
        return None if raw is None else SlurmCluster.model_validate(raw)

    def _client(self, cluster: SlurmCluster) -> RedboxClient:
        spec = cluster.spec
        token = RedboxToken(self.objects, self.account, spec.audience)
        return RedboxClient(spec.endpoint, token=token, ca_bundle=spec.ca_bundle)
