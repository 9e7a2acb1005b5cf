"""resourced put together: what is served, who leads, and what runs while this process does."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from prometheus_client import CollectorRegistry

from redbox_kube.lease import Lease
from redbox_kube.objects import Objects
from redbox_kube.own_token import Account
from redbox_kube.serving import serving
from redbox_resourced.clusters import Clusters
from redbox_resourced.gateways import Gateways
from redbox_resourced.node_claims import NodeClaims
from redbox_resourced.overrides import OverridesFile
from redbox_resourced.publishing import Publishing
from redbox_resourced.seen_nodes import MANAGER
from redbox_resourced.virtual_delivery import KubeletSettings, VirtualDelivery
from redbox_resourced.virtual_node import Address
from redbox_resourced.virtual_nodes import Face, VirtualNodes

LEASE = "redbox-resourced"


@dataclass(frozen=True)
class Settings:
    """How this resourced runs."""

    account: Account
    address: Address
    state: Path
    serving: Path | None = None
    health_port: int = 8080
    most_nodes: int = 20
    gone_after_s: float = 600.0
    old_keys: bool = False
    overrides: Path | None = None


async def run_resourced(settings: Settings) -> None:
    """Publish and serve until told to end."""
    end_when_told()
    overrides = OverridesFile(settings.overrides)
    overrides.load()
    objects = await Objects.connect(MANAGER)
    try:
        await _lead(objects, settings, overrides)
    finally:
        await objects.close()


async def _lead(objects: Objects, settings: Settings, overrides: OverridesFile) -> None:
    registry = CollectorRegistry()
    publishing: Publishing | None = None
    delivery: VirtualDelivery | None = None

    def trouble() -> str | None:
        if publishing is None or delivery is None:
            return "waiting for the lease"
        virtual = delivery.trouble if publishing.clusters.deliver_virtually else ""
        return publishing.unready or virtual or None

    async with (
        serving(settings.health_port, registry, unready=trouble),
        Lease(objects, settings.account.namespace, LEASE).leading(),
    ):
        publishing = await _publishing(objects, settings, overrides, registry)
        kubelet = KubeletSettings(settings.address, settings.state, settings.serving)
        delivery = VirtualDelivery(objects, publishing.clusters, settings.account, kubelet)
        async with asyncio.TaskGroup() as group:
            group.create_task(publishing.run())
            group.create_task(delivery.run())


async def _publishing(
    objects: Objects, settings: Settings, overrides: OverridesFile, registry: CollectorRegistry
) -> Publishing:
    claims = NodeClaims(objects)
    face = Face(settings.address, await objects.server_version(), version("red-box"), settings.old_keys)
    return Publishing(
        objects,
        lambda changed: Clusters(objects, settings.account, changed),
        overrides=overrides,
        virtual=VirtualNodes(objects, claims, face, settings.gone_after_s),
        gateways=Gateways(claims, settings.old_keys),
        most_nodes=settings.most_nodes,
        registry=registry,
    )


def end_when_told() -> None:
    """SIGTERM ends it in order: the lease is free for the next one at once."""
    this = asyncio.current_task()
    if this is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
