"""resourced put together: what is served, who leads, and what runs while this process does."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from redbox_kube.api.lease import Lease
from redbox_kube.api.objects import ObjectClient
from redbox_kube.redbox_token import ServiceAccountName
from redbox_kube.runtime.health_server import serving
from redbox_resourced.nodes.gateways import GatewayNodes
from redbox_resourced.nodes.node_view import MANAGER
from redbox_resourced.nodes.readiness import NodeReadiness
from redbox_resourced.nodes.reconciler import NodeReconciler
from redbox_resourced.nodes.server_side_apply import NodeApplier
from redbox_resourced.nodes.virtual_nodes import VirtualNodes
from redbox_resourced.partitions.overrides import OverridesFile
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.virtual_delivery import KubeletSettings, VirtualDelivery

LEASE = "redbox-resourced"


@dataclass(frozen=True)
class ResourcedSettings:
    """How this resourced runs."""

    account: ServiceAccountName
    kubelet: KubeletSettings
    health_port: int = 8080
    most_nodes: int = 20
    gone_after_s: float = 600.0
    old_keys: bool = False
    overrides: Path | None = None


async def run_resourced(settings: ResourcedSettings) -> None:
    """Publish and serve until told to end."""
    cancel_on_sigterm()
    overrides = OverridesFile(settings.overrides)
    overrides.load()
    objects = await ObjectClient.connect(MANAGER)
    try:
        await Resourced(objects, settings, overrides).run()
    finally:
        await objects.close()


class Resourced:
    """The parts, and in which order they begin."""

    def __init__(self, objects: ObjectClient, settings: ResourcedSettings, overrides: OverridesFile) -> None:
        self._objects = objects
        self._settings = settings
        self._registry = CollectorRegistry()
        self._clusters = ClusterRegistry(objects, settings.account)
        self._delivery = VirtualDelivery(objects, self._clusters, settings.account, settings.kubelet)
        claims = NodeApplier(objects)
        self._virtual = VirtualNodes(
            objects,
            claims,
            settings.kubelet.address,
            NodeReadiness(self._delivery),
            gone_after_s=settings.gone_after_s,
            old_keys=settings.old_keys,
        )
        self._publishing = NodeReconciler(
            objects,
            self._clusters,
            overrides=overrides,
            virtual=self._virtual,
            gateways=GatewayNodes(claims, settings.old_keys),
            most_nodes=settings.most_nodes,
            registry=self._registry,
        )
        self._lease = Lease(objects, settings.account.namespace, LEASE)
        self._leads = False

    async def run(self) -> None:
        """Wait for the Lease, then run all of it."""
        async with (
            serving(self._settings.health_port, self._registry, unready=self._unready),
            self._lease.leading(),
            asyncio.TaskGroup() as group,
        ):
            self._leads = True
            self._virtual.kubernetes = await self._objects.server_version()
            for part in (self._clusters, self._delivery, self._publishing):
                group.create_task(part.run())

    def _unready(self) -> str | None:
        """One that could take over at once is as ready as it can be."""
        if not self._leads:
            return None if self._lease.leader else "the Lease has not been seen yet"
        virtual = self._delivery.trouble if self._clusters.deliver_virtually else ""
        return self._publishing.unready or virtual or None


def cancel_on_sigterm() -> None:
    """SIGTERM ends it in order: the lease is free for the next one at once."""
    this = asyncio.current_task()
    if this is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
