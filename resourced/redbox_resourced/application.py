"""resourced as a whole: what is served, the leader election, and what runs in this process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from redbox_clusters.redbox_token import ServiceAccountName
from redbox_kube.api.lease import Lease
from redbox_kube.api.objects import ObjectClient
from redbox_kube.controller.process import LeaderProcess, run_until_sigterm
from redbox_resourced.nodes.gateways import GatewayNodes
from redbox_resourced.nodes.manifest import KubeletAddress
from redbox_resourced.nodes.node_view import MANAGER
from redbox_resourced.nodes.reconciler import NodeReconciler
from redbox_resourced.nodes.server_side_apply import NodeApplier
from redbox_resourced.nodes.virtual_nodes import VirtualNodes
from redbox_resourced.partitions.overrides import OverridesFile
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.pod_view import has_job
from redbox_resourced.pods_condition import PodGrants, PodsCondition
from redbox_resourced.virtual_delivery import VirtualDelivery
from redbox_resourced.volumes.provisioner import DirectoryProvisioner

LEASE = "redbox-resourced"


@dataclass(frozen=True)
class ResourcedSettings:
    """The command line's options."""

    account: ServiceAccountName
    address: KubeletAddress
    """Of this pod, which the virtual nodes publish as theirs."""
    state_folder: Path
    serving_folder: Path | None
    health_port: int
    node_limit: int
    """Virtual nodes of one SlurmCluster."""
    gone_after_s: float
    old_keys: bool
    overrides: Path | None
    pods: PodGrants
    volumes: bool
    """Whether to make folders for claims of provisioner redbox.dev/directory."""


async def run_resourced(settings: ResourcedSettings) -> None:
    """Run until SIGTERM."""
    overrides = OverridesFile(settings.overrides)
    overrides.load()
    await run_until_sigterm(MANAGER, lambda objects: Resourced(objects, settings, overrides).run())


class Resourced:
    """The components, and the order in which they start."""

    def __init__(self, objects: ObjectClient, settings: ResourcedSettings, overrides: OverridesFile) -> None:
        self._objects = objects
        self._settings = settings
        self._registry = CollectorRegistry()
        self._clusters = ClusterRegistry(objects, settings.account)
        self._delivery = VirtualDelivery(
            objects,
            self._clusters,
            settings.account,
            settings.address,
            state_folder=settings.state_folder,
            serving_folder=settings.serving_folder,
            may_run_pods=settings.pods.enabled,
            namespaces=settings.pods.namespaces,
            token_namespaces=settings.pods.api_token_namespaces,
        )
        self._registry.register(self._delivery.metrics)
        self._pods_condition = PodsCondition(
            objects, self._clusters, settings.pods, self._delivery.pods_serving
        )
        applier = NodeApplier(objects)
        self._virtual = VirtualNodes(
            objects,
            applier,
            settings.address,
            self._delivery.serving_status,
            has_job,
            gone_after_s=settings.gone_after_s,
            old_keys=settings.old_keys,
        )
        self._nodes = NodeReconciler(
            objects,
            self._clusters,
            overrides=overrides,
            virtual=self._virtual,
            gateways=GatewayNodes(applier, settings.old_keys),
            node_limit=settings.node_limit,
            registry=self._registry,
        )
        self._provisioner = DirectoryProvisioner(objects, self._clusters) if settings.volumes else None
        lease = Lease(objects, settings.account.namespace, LEASE)
        self._process = LeaderProcess(lease, self._registry, settings.health_port, unready=self._unready)

    async def run(self) -> None:
        """Acquire the Lease, and work until cancelled."""
        await self._process.run(self._work)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._virtual.kubernetes_version = await self._objects.server_version()
            for component in (self._clusters, self._delivery, self._nodes):
                group.create_task(component.run())
            if self._settings.pods.enabled:  # without it there is no right to write the condition
                group.create_task(self._pods_condition.run())
            if self._provisioner is not None:
                group.create_task(self._provisioner.run())

    def _unready(self) -> str | None:
        delivery = self._delivery.problem if self._clusters.have_virtual_nodes else ""
        return self._nodes.unready or delivery or None
