"""Virtual delivery as a whole: the pods on virtual nodes, and the kubelet API that serves them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from redbox_kube.api.objects import ObjectClient
from redbox_kube.redbox_token import ServiceAccountName
from redbox_resourced.kubelet.authorization import Authorizer
from redbox_resourced.kubelet.listener import KubeletListener
from redbox_resourced.kubelet.server import KubeletApi
from redbox_resourced.kubelet.serving_certificate import ServingCertificate
from redbox_resourced.nodes.manifest import KubeletAddress
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.reconciler import PodReconciler
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.pods.token_policy import TokenPolicy
from redbox_resourced.pods.tokens import PodTokens

NEEDED_EVERY_S = 0.5


@dataclass(frozen=True)
class KubeletSettings:
    """Where the API server finds the kubelet API, and what it is served with."""

    address: KubeletAddress
    """This pod's own, which the virtual nodes have as theirs."""
    folder: Path
    """Keeps keys and certificates over a restart in the same pod."""
    certificate: Path | None = None
    """A folder with tls.crt and tls.key, where an administrator gives them."""


class VirtualDelivery:
    """`run` it in a TaskGroup, beside the clusters."""

    def __init__(
        self,
        objects: ObjectClient,
        clusters: ClusterRegistry,
        account: ServiceAccountName,
        settings: KubeletSettings,
    ) -> None:
        submission = PodSubmitter(objects, PodTokens(objects))
        self._clusters = clusters
        self._policy = TokenPolicy(objects, account)
        ip, port = settings.address.ip, settings.address.port
        self._pods = PodReconciler(objects, clusters, submission, ip)
        self._api = KubeletApi(self._pods, clusters, submission, Authorizer(objects))
        self._runner = self._api.runner()
        self._listener = KubeletListener(objects, self._runner, ip, port)
        self._certificate = ServingCertificate(
            objects,
            ip,
            folder=settings.folder,
            given=settings.certificate,
            changed=self._listener.use,
        )

    @property
    def trouble(self) -> str:
        """Why the nodes are not served; empty where they are."""
        return self._policy.trouble or self._listener.trouble

    @property
    def note(self) -> str:
        """What an administrator has yet to do for the serving certificate; empty where there is nothing."""
        return self._certificate.note

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._policy.wait()
        await self._runner.setup()
        try:
            async with asyncio.TaskGroup() as group:
                for part in (self._listener, self._pods):
                    group.create_task(part.run())
                await self._needed()
                group.create_task(self._certificate.run())
        finally:
            await self._runner.cleanup()

    async def _needed(self) -> None:
        """An administrator is not to approve what only gateways would never use."""
        while not (self._clusters.deliver_virtually or self._pods.bound.by_key):  # noqa: ASYNC110 (rare)
            await asyncio.sleep(NEEDED_EVERY_S)
