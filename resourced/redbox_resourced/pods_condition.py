"""The condition PodsReady of SlurmClusters: whether pods on their virtual nodes run, else what is missing.

resourced writes it, because only resourced has tried; it is the only field of a SlurmCluster that resourced
writes, as its owner (server-side apply). Until then the operator reports `NotReported` in its place. It is
never removed again: the operator still owns its type, and half a condition would be invalid. A resourced that
has stopped leaves it as it was: then the virtual nodes are not Ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from redbox_clusters.slurm_cluster import (
    NOT_REPORTED,
    PODS_DISABLED,
    PODS_READY,
    SLURM_CLUSTERS,
    PodsSpec,
    SlurmCluster,
)
from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.virtual_delivery import PodsServing
from redbox_shared.printable import printable_texts

PERIOD_S = 5.0
LONGEST_MESSAGE = 4096


@dataclass(frozen=True)
class PodGrants:
    """What the chart allows resourced for pods: its values `resourced.pods`."""

    enabled: bool = False
    namespaces: tuple[str, ...] = ()
    api_token_namespaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class PodsReadiness:
    """The condition, without the time of its last change."""

    holds: bool
    reason: str
    message: str


DISABLED = PodsReadiness(holds=False, reason=PODS_DISABLED, message="pods.enabled is false")


def readiness_of(spec: PodsSpec, grants: PodGrants, serving: PodsServing) -> PodsReadiness:
    """The first thing that is missing, beginning with what concerns all pods. Pure."""
    if serving.problem:
        return PodsReadiness(holds=False, reason=serving.reason, message=serving.problem)
    if spec.api_tokens and not grants.api_token_namespaces:
        message = (
            "pods.apiTokens is true, but the chart's resourced.pods.apiTokenNamespaces lists no namespace: "
            "pods run, and those that ask for an API token wait"
        )
        return PodsReadiness(holds=False, reason="NoTokenNamespaces", message=message)
    if serving.certificate is not None:
        certificate = serving.certificate
        return PodsReadiness(holds=True, reason=certificate.reason, message=certificate.message)
    if spec.routed and serving.services:
        return PodsReadiness(holds=True, reason="ServicesNotServed", message=serving.services)
    if not grants.namespaces:
        message = (
            "Pods run as Slurm jobs. Secrets are read nowhere, and pods that refer to Secrets wait: the "
            "chart's resourced.pods.namespaces lists no namespace."
        )
        return PodsReadiness(holds=True, reason="Served", message=message)
    listed = ", ".join(grants.namespaces)
    message = f"Pods run as Slurm jobs; Secrets are read in namespaces {listed}."
    return PodsReadiness(holds=True, reason="Served", message=message[:LONGEST_MESSAGE])


def condition_of(cluster: SlurmCluster, readiness: PodsReadiness, now: str) -> Object:
    """With the time since when its status holds."""
    status = "True" if readiness.holds else "False"
    before = written_condition(cluster) or {}
    since = before.get("lastTransitionTime", now) if before.get("status") == status else now
    return {
        "type": PODS_READY,
        "status": status,
        "reason": readiness.reason,
        "message": readiness.message,
        "lastTransitionTime": since,
        "observedGeneration": cluster.metadata.get("generation", 0),
    }


def written_condition(cluster: SlurmCluster) -> Object | None:
    """The one that resourced has written."""
    conditions: list[Object] = cluster.status.get("conditions") or []
    return next(
        (
            condition
            for condition in conditions
            if condition["type"] == PODS_READY and condition["reason"] != NOT_REPORTED
        ),
        None,
    )


class PodsCondition:
    """Keeps the condition of all SlurmClusters."""

    def __init__(
        self,
        objects: ObjectClient,
        clusters: ClusterRegistry,
        grants: PodGrants,
        serving: Callable[[str], PodsServing | None],
    ) -> None:
        """`serving`, by SlurmCluster, returns None during startup: the condition then stays as it is."""
        self.warnings = GroupedWarnings("condition PodsReady not written")
        self._objects = objects
        self._clusters = clusters
        self._grants = grants
        self._serving = serving

    async def run(self) -> None:
        while True:
            await self.write_all()
            await asyncio.sleep(PERIOD_S)

    async def write_all(self) -> None:
        """Write those that have changed; failures are retried in the next pass."""
        for name, followed in self._clusters.followed.items():
            try:
                await self._write(followed.cluster, self._serving(name))
            except ApiError as error:
                self.warnings.failed(name, error)
            else:
                self.warnings.recovered(name)

    async def _write(self, cluster: SlurmCluster, serving: PodsServing | None) -> None:
        before = written_condition(cluster)
        if not cluster.spec.pods.enabled:
            if before is None:
                return
            readiness = DISABLED
        elif serving is None:
            return
        else:
            readiness = readiness_of(cluster.spec.pods, self._grants, serving)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        after = printable_texts(condition_of(cluster, readiness, now), lines=True)
        if after != before:
            path = ResourcePath(SLURM_CLUSTERS, cluster.name)
            body = {"metadata": {"uid": cluster.metadata["uid"]}, "status": {"conditions": [after]}}
            await self._objects.apply(path, body, subresource="status")
