"""SlurmClusters and SlurmEndpoints: their partitions with limits, their nodes, and what is free of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kubectl_slurm.errors import KindsMissing, NotPermitted, Refusal
from kubectl_slurm.kubectl.program import SLURMCLUSTERS, SLURMENDPOINTS, Kubectl
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.terminal.screen import one_line

Object = dict[str, Any]


@dataclass(frozen=True)
class ListedPartition:
    """A partition in the status of its SlurmCluster."""

    cluster: str
    obj: Object

    @property
    def name(self) -> str:
        return str(self.obj.get("name", ""))

    @property
    def is_default(self) -> bool:
        return bool(self.obj.get("default"))

    @property
    def state(self) -> str:
        return str(self.obj.get("state") or "").lower()

    @property
    def node_states(self) -> dict[str, int]:
        return dict(self.obj.get("nodes") or {})

    def limit(self, name: str) -> int | None:
        """None: unlimited."""
        value = (self.obj.get("limits") or {}).get(name)
        return int(value) if value is not None else None

    def amount(self, of: str, name: str) -> int | None:
        """`of` is free, total or largestNode; None: not published."""
        value = (self.obj.get(of) or {}).get(name)
        return int(value) if value is not None else None


@dataclass(frozen=True)
class ClusterView:
    """A SlurmCluster, or a SlurmEndpoint of a namespace."""

    obj: Object

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def is_endpoint(self) -> bool:
        return "namespace" in self.obj["metadata"]

    @property
    def title(self) -> str:
        return f"{'SlurmEndpoint' if self.is_endpoint else 'SlurmCluster'} {self.name}"

    @property
    def key(self) -> str:
        """As the `cluster_key` of its jobs."""
        return f"{self.obj['metadata']['namespace']}/{self.name}" if self.is_endpoint else self.name

    @property
    def audience(self) -> str:
        """Of tokens for its red-box; for a SlurmEndpoint computed, as the operator does: none choose it."""
        if self.is_endpoint:
            return f"redbox.dev/ns/{self.obj['metadata']['namespace']}/{self.obj['metadata']['uid']}"
        return str(self.spec.get("audience", ""))

    @property
    def spec(self) -> Object:
        return dict(self.obj.get("spec") or {})

    @property
    def runs_pods(self) -> bool:
        return bool((self.spec.get("pods") or {}).get("enabled"))

    @property
    def status(self) -> Object:
        return dict(self.obj.get("status") or {})

    def condition(self, kind: str) -> Object:
        return next((item for item in self.status.get("conditions") or () if item.get("type") == kind), {})

    @property
    def partition_names(self) -> list[str]:
        return [str(name) for name in self.status.get("partitionNames") or ()]

    @property
    def partitions(self) -> list[ListedPartition]:
        return [ListedPartition(self.name, partition) for partition in self.status.get("partitions") or ()]

    @property
    def trouble(self) -> str:
        """Why its status may be old."""
        for kind in ("Reachable", "Current"):
            condition = self.condition(kind)
            if condition.get("status") == "False":
                return str(condition.get("message") or condition.get("reason") or kind)
        return "" if self.condition("Reachable") else "the operator has not looked at it yet"


def list_clusters(kubectl: Kubectl) -> list[ClusterView]:
    """SlurmClusters, and SlurmEndpoints of the namespace: those that the user may see."""
    found: list[Object] = []
    refusal: NotPermitted | None = None
    try:
        found += kubectl.json("get", SLURMCLUSTERS)["items"]
    except NotPermitted as error:
        refusal = error  # who has rights in a namespace alone may still have a SlurmEndpoint there
    with contextlib.suppress(NotPermitted, KindsMissing):
        found += kubectl.json("get", SLURMENDPOINTS)["items"]
    if refusal and not found:
        raise refusal
    return [ClusterView(obj) for obj in found]


def all_clusters(kubectl: Kubectl, *, everywhere: bool = False) -> list[ClusterView]:
    """As list_clusters; NotPermitted where the user may not see all of them."""
    scope = ["--all-namespaces"] if everywhere else []
    found = kubectl.json("get", SLURMCLUSTERS)["items"]
    with contextlib.suppress(KindsMissing):
        found += kubectl.json("get", SLURMENDPOINTS, *scope)["items"]
    return [ClusterView(obj) for obj in found]


def no_partition(names: Iterable[str], clusters: Iterable[ClusterView]) -> str:
    """The sentence about partitions that are not there, with those that are."""
    there = "; ".join(f"{cluster.name} has {', '.join(cluster.partition_names)}" for cluster in clusters)
    return one_line(f"there is no partition {', '.join(sorted(names))}: {there}")


def check_partitions(
    kubectl: Kubectl, names: str | None, jobs: Iterable[SlurmJobView], *, everywhere: bool = False
) -> str:
    """The sentence about partitions that no cluster has; Refusal where all of `names` (a,b) are such.

    Clusters are listed only for a partition without jobs: it costs as much as the queue itself. Where the
    user may not see all of them, or one has not published its partitions, any partition may exist.
    """
    wanted = {name for name in (names or "").split(",") if name}
    without_jobs = wanted - {name for job in jobs if job.in_slurm for name in job.partition.split(",")}
    if not without_jobs:
        return ""
    try:
        clusters = all_clusters(kubectl, everywhere=everywhere)
    except NotPermitted:
        return ""
    if not clusters or not all(cluster.partition_names for cluster in clusters):
        return ""
    missing = without_jobs - {name for cluster in clusters for name in cluster.partition_names}
    if not missing:
        return ""
    sentence = no_partition(missing, clusters)
    if missing == wanted:
        raise Refusal(sentence)
    return sentence


def cluster_of(kubectl: Kubectl, job: SlurmJobView) -> ClusterView:
    """Where this job is, or would be: the only one, if it names none."""
    if job.endpoint:
        return ClusterView(kubectl.json("get", SLURMENDPOINTS, "--", job.endpoint))
    if job.cluster:
        return ClusterView(kubectl.json("get", SLURMCLUSTERS, "--", job.cluster))
    clusters = list_clusters(kubectl)
    if len(clusters) == 1:
        return clusters[0]
    titles = ", ".join(cluster.title for cluster in clusters)
    raise Refusal(f"name one of {titles}" if titles else "there is no SlurmCluster, and no SlurmEndpoint")
