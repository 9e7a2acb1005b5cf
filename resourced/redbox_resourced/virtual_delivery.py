"""Virtual delivery: the pods on virtual nodes, and the kubelet API that serves them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redbox_kube.api.objects import ObjectClient
from redbox_kube.redbox_token import ServiceAccountName
from redbox_resourced.kubelet.authorization import Authorizer
from redbox_resourced.kubelet.listener import KubeletListener
from redbox_resourced.kubelet.server import KubeletApi
from redbox_resourced.kubelet.serving_certificate import ServingCertificate
from redbox_resourced.nodes.manifest import KubeletAddress, ServingStatus
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.reconciler import PodReconciler
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.pods.token_policy import TokenPolicy

POLL_S = 0.5
STARTUP_S = 20.0


class VirtualDelivery:
    """`run` it in a TaskGroup, beside the cluster registry."""

    def __init__(
        self,
        objects: ObjectClient,
        clusters: ClusterRegistry,
        account: ServiceAccountName,
        address: KubeletAddress,
        *,
        state_folder: Path,
        serving_folder: Path | None,
    ) -> None:
        submitter = PodSubmitter(objects)
        self._clusters = clusters
        self._policy = TokenPolicy(objects, account)
        self._pods = PodReconciler(objects, clusters, submitter, address.ip)
        self._runner = KubeletApi(self._pods, clusters, submitter, Authorizer(objects)).runner()
        self._listener = KubeletListener(objects, self._runner, address.ip, address.port)
        self._certificate = ServingCertificate(
            objects, address.ip, state_folder, serving_folder, self._listener.use
        )
        self._started_at: float | None = None

    @property
    def problem(self) -> str:
        """Why the nodes are not served; empty where they are."""
        return self._policy.problem or self._listener.problem

    def serving_status(self) -> ServingStatus | None:
        """None during startup; a problem counts only after the time that a start may take."""
        now = asyncio.get_running_loop().time()
        self._started_at = self._started_at or now
        is_starting = now - self._started_at < STARTUP_S
        return None if self.problem and is_starting else ServingStatus(self.problem, self._certificate.note)

    async def run(self) -> None:
        await self._policy.wait()
        await self._runner.setup()
        try:
            async with asyncio.TaskGroup() as group:
                for component in (self._listener, self._pods):
                    group.create_task(component.run())
                # Only now: an administrator need not approve a certificate where there are gateways alone.
                while not (self._clusters.have_virtual_nodes or self._pods.informer.by_key):  # noqa: ASYNC110 (rare)
                    await asyncio.sleep(POLL_S)
                group.create_task(self._certificate.run())
        finally:
            await self._runner.cleanup()
