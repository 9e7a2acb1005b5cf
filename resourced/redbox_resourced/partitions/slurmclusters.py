"""The SlurmClusters that exist, each with a feed of the partitions that its red-box reports.

Each feed runs in its own task, so that a red-box that hangs delays no other. Nothing is decided here: the
node reconciler reads `followed` on each change, and code that serves a virtual node calls `of_node`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import structlog

from redbox_api.client import RedboxClient
from redbox_api.models import Partition
from redbox_clusters.node_labels import dns_label
from redbox_clusters.redbox_token import RedboxToken, ServiceAccountName
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS, SlurmCluster
from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.objects import ObjectClient, ResourcePath
from redbox_resourced.partitions.partition_feed import PartitionFeed

log = structlog.get_logger(__name__)


class ClusterConnection(NamedTuple):
    """A SlurmCluster, the client of its red-box, and its partitions."""

    cluster: SlurmCluster
    client: RedboxClient
    partitions: Mapping[str, Partition] = MappingProxyType({})
    """As far as red-box has listed them, by their names in Slurm."""


class ClusterRegistry:
    """Follows every SlurmCluster; `run` it in a TaskGroup."""

    def __init__(self, objects: ObjectClient, account: ServiceAccountName) -> None:
        self.on_change: list[Callable[[], None]] = []
        """Callbacks for every change of a SlurmCluster or its partitions."""
        self.invalid: dict[str, str] = {}
        """SlurmClusters whose spec cannot be used, and why."""
        self._objects = objects
        self._account = account
        self._feeds: dict[str, tuple[PartitionFeed, asyncio.Task[None]]] = {}
        resource = ResourcePath(SLURM_CLUSTERS)
        self._informer = Informer(objects, resource, on_change=self._clusters_changed)
        self._group = asyncio.TaskGroup()

    @property
    def synced(self) -> bool:
        """Whether all SlurmClusters are listed: before that, none can be considered deleted."""
        return self._informer.listed.is_set()

    @property
    def names(self) -> set[str]:
        """All that exist, followed or not."""
        return {name for _, name in self._informer.items}

    @property
    def followed(self) -> Mapping[str, PartitionFeed]:
        """Feeds by the SlurmCluster's name."""
        return {name: feed for name, (feed, _) in self._feeds.items()}

    @property
    def have_virtual_nodes(self) -> bool:
        """Whether any SlurmCluster has: for its companions, or for pods."""
        return any(feed.cluster.spec.has_virtual_nodes for feed, _ in self._feeds.values())

    @property
    def run_pods(self) -> bool:
        """Whether any SlurmCluster runs pods as jobs."""
        return any(feed.cluster.spec.pods.enabled for feed, _ in self._feeds.values())

    def of_node(self, node_name: str) -> ClusterConnection | None:
        """The SlurmCluster of a virtual node; None where no followed SlurmCluster has such a node.

        Called at every reconciliation of a pod: its cost must not grow with the number of partitions.
        """
        cluster_label = node_name.partition(".")[0]
        for feed, _ in self._feeds.values():
            if dns_label(feed.cluster.name) == cluster_label:
                return ClusterConnection(feed.cluster, feed.client, feed.all_partitions)
        return None

    def may_have_node(self, node_name: str) -> bool:
        """Whether a SlurmCluster of this node may exist: one that cannot be used, or is not listed yet."""
        cluster_label = node_name.partition(".")[0]
        return not self.synced or any(dns_label(name) == cluster_label for name in self.names)

    async def run(self) -> None:
        async with self._group:
            await self._informer.run()

    def _notify(self) -> None:
        for callback in self.on_change:
            callback()

    def _clusters_changed(self, places: set[Place]) -> None:
        for _, name in places:
            self._reconcile(name)
        self._notify()

    def _reconcile(self, name: str) -> None:
        """Start, replace or stop the feed of a SlurmCluster, as its current spec demands."""
        try:
            manifest = self._informer.items.get(("", name))
            cluster = None if manifest is None else SlurmCluster.model_validate(manifest)
            feed, _ = self._feeds.get(name, (None, None))
            if cluster and feed and feed.adopt(cluster):
                return
            self._stop(name)
            if cluster is not None and cluster.spec.waits_for_ca:  # else public authorities would be trusted
                self.invalid[name] = f"SlurmCluster {name} waits for the CA that caBundleFrom names"
            elif cluster is not None:
                feed = PartitionFeed(cluster, self._client(cluster), self._notify)
                self._feeds[name] = (feed, self._group.create_task(feed.run()))
        except (ValueError, OSError) as error:  # pydantic's ValidationError, ssl's SSLError
            self._stop(name)
            self.invalid[name] = f"SlurmCluster {name} cannot be used: {error}"
            log.warning("SlurmCluster cannot be used", cluster=name, error=str(error))

    def _stop(self, name: str) -> None:
        self.invalid.pop(name, None)
        if name in self._feeds:
            _, task = self._feeds.pop(name)
            task.cancel()

    def _client(self, cluster: SlurmCluster) -> RedboxClient:
        spec = cluster.spec
        token = RedboxToken(self._objects, self._account, spec.audience)
        return RedboxClient(spec.endpoint, token=token, ca_bundle=spec.ca_bundle)
