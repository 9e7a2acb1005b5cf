"""Virtual delivery: the pods on virtual nodes, and the kubelet API that serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from redbox_clusters.redbox_token import ServiceAccountName
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_kube.api.objects import ObjectClient
from redbox_resourced.admission_policies import pod_policy, slice_policy, token_policy, volume_policy
from redbox_resourced.kubelet.authorization import Authorizer
from redbox_resourced.kubelet.certificate_expiry import (
    NOT_SIGNED,
    CertificateExpiry,
    CertificateMetrics,
    CertificateWarning,
)
from redbox_resourced.kubelet.listener import KubeletListener
from redbox_resourced.kubelet.server import KubeletApi
from redbox_resourced.kubelet.serving_certificate import ServingCertificate
from redbox_resourced.nodes.manifest import KubeletAddress, ServingStatus
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.reconciler import PodReconciler
from redbox_resourced.pods.submission import TOO_OLD, PodSubmitter, too_old_message
from redbox_resourced.pods.tolerations import TolerationLifter
from redbox_resourced.pods.updates.updater import PodUpdater
from redbox_resourced.service_endpoints.reconciler import ServiceEndpoints
from redbox_resourced.translation.pod import translate

NOT_INSTALLED = (
    "resourced has no rights for pods that are not of SlurmJobs: set resourced.pods.enabled of the chart"
)
POLL_S = 0.5
STARTUP_S = 20.0


@dataclass(frozen=True)
class PodsServing:
    """Why pods do not run as jobs, in one word and in a sentence; both empty where they do."""

    reason: str = ""
    problem: str = ""
    certificate: CertificateWarning | None = None
    services: str = ""
    """Why Services do not lead to pods with dynamic ports."""


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
        may_run_pods: bool,
        namespaces: tuple[str, ...] = (),
        token_namespaces: tuple[str, ...] = (),
    ) -> None:
        """`may_run_pods`: whether the chart gives the rights for pods other than companions.

        `namespaces`: where it lets Secrets be read.
        """
        submitter = self._submitter = PodSubmitter(objects, translate, token_namespaces)
        self._clusters = clusters
        self._policy = token_policy(objects, account)
        self._pods = PodReconciler(objects, clusters, submitter, address.ip)
        self._runner = KubeletApi(self._pods, clusters, submitter, Authorizer(objects)).runner()
        self._listener = KubeletListener(objects, self._runner, address.ip, address.port)
        self._certificate = ServingCertificate(
            objects, address.ip, state_folder, serving_folder, self._listener.use
        )
        self._expiry = CertificateExpiry(objects, lambda: self._certificate.life, self._with_virtual_nodes)
        self.metrics = CertificateMetrics(lambda: self._certificate.life)
        self._may_run_pods = may_run_pods
        self._pod_policies = (pod_policy(objects, account), volume_policy(objects, account))
        self._lifter = TolerationLifter(objects, self._pods.informer.pods.values, self._runs_pods)
        self._pods.why_no_pods = self.why_no_pods
        self._endpoints = ServiceEndpoints(objects)
        self._pods.on_shown.append(self._endpoints.pod_shown)
        self._pods.on_delete.append(self._endpoints.pod_deleted)
        self._updater = PodUpdater(objects, clusters, submitter, namespaces, token_namespaces)
        self._pods.on_shown.append(self._updater.pod_shown)
        self._pods.on_delete.append(self._updater.pod_deleted)
        self._slice_policy = slice_policy(objects, account)
        self._started_at: float | None = None

    @property
    def problem(self) -> str:
        """Why the nodes are not served; empty where they are."""
        return self._policy.problem or self._listener.problem

    def serving_status(self) -> ServingStatus | None:
        """None during startup; a problem counts only after the time that a start may take."""
        is_starting = self._is_starting()
        if self.problem and is_starting:
            return None
        warning = self._expiry.warning
        return ServingStatus(self.problem, self._certificate.note or (warning.message if warning else ""))

    def pods_serving(self, cluster: str) -> PodsServing | None:
        """As `serving_status`, of pods other than companions on nodes of this SlurmCluster."""
        is_starting, found = self._is_starting(), self._pods_serving(cluster)
        return None if is_starting and (found.problem or found.certificate) else found

    def why_no_pods(self) -> str:
        """Why the jobs of pods other than companions must not be submitted; empty where they may be."""
        if not self._may_run_pods:
            return NOT_INSTALLED
        return next((policy.problem for policy in self._pod_policies if policy.problem), "")

    def _pods_serving(self, cluster: str) -> PodsServing:
        if self.problem:
            return PodsServing("NotServed", self.problem)
        if problem := self.why_no_pods():
            return PodsServing("PolicyMissing", problem)
        if cluster in self._submitter.too_old:
            return PodsServing(TOO_OLD, too_old_message(cluster))
        note = self._certificate.note if self._certificate.is_self_signed else ""
        return PodsServing(
            certificate=self._expiry.warning or (CertificateWarning(NOT_SIGNED, note) if note else None),
            services="" if self._is_starting() else self._slice_policy.problem,
        )

    def _with_virtual_nodes(self) -> Iterator[SlurmCluster]:
        followed = self._clusters.followed.values()
        return (each.cluster for each in followed if each.cluster.spec.has_virtual_nodes)

    def _is_starting(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._started_at = self._started_at or now
        return now - self._started_at < STARTUP_S

    def _runs_pods(self, node: str) -> bool:
        connection = self._clusters.of_node(node)
        return connection is not None and connection.cluster.spec.pods.enabled

    async def run(self) -> None:
        await self._policy.wait()
        await self._runner.setup()
        try:
            async with asyncio.TaskGroup() as group:
                for component in (self._listener, self._pods):
                    group.create_task(component.run())
                if self._may_run_pods:
                    group.create_task(self._serve_pods())
                # Only now: an administrator need not approve a certificate where there are gateways alone.
                while not (self._clusters.have_virtual_nodes or self._pods.informer.by_key):  # noqa: ASYNC110 (rare)
                    await asyncio.sleep(POLL_S)
                group.create_task(self._expiry.run())
                group.create_task(self._certificate.run())
        finally:
            await self._runner.cleanup()

    async def _serve_pods(self) -> None:
        """Only where a SlurmCluster wants it."""
        while not self._clusters.run_pods:  # noqa: ASYNC110 (rare)
            await asyncio.sleep(POLL_S)
        for policy in self._pod_policies:
            await policy.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lifter.run())
            group.create_task(self._updater.run())
            await self._slice_policy.wait()
            group.create_task(self._endpoints.run())
