"""SlurmClusters, as their status shows them: partitions with limits, nodes, and what is free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubectl_slurm.errors import Refusal
from kubectl_slurm.kubectl.program import SLURMCLUSTERS, SLURMENDPOINTS, Kubectl
from kubectl_slurm.slurmjobs.job import SlurmJobView

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
    """A SlurmCluster."""

    obj: Object

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def spec(self) -> Object:
        return dict(self.obj.get("spec") or {})

    @property
    def status(self) -> Object:
        return dict(self.obj.get("status") or {})

    def condition(self, kind: str) -> Object:
        return next((item for item in self.status.get("conditions") or () if item.get("type") == kind), {})

    @property
    def partition_names(self) -> list[str]:
        return [str(name) for name in self.status.get("partitionNames") or ()]

    @property
    def partitions(self) -> list[ListedPartition] | None:
        """None: this operator publishes their names alone."""
        published = self.status.get("partitions")
        if not isinstance(published, list):
            return None
        return [ListedPartition(self.name, partition) for partition in published]

    @property
    def trouble(self) -> str:
        """Why its status may be old."""
        for kind in ("Reachable", "Current"):
            condition = self.condition(kind)
            if condition.get("status") == "False":
                return str(condition.get("message") or condition.get("reason") or kind)
        return "" if self.condition("Reachable") else "the operator has not looked at it yet"


def list_clusters(kubectl: Kubectl) -> list[ClusterView]:
    return [ClusterView(obj) for obj in kubectl.json("get", SLURMCLUSTERS)["items"]]


def cluster_of(kubectl: Kubectl, job: SlurmJobView) -> ClusterView:
    """Where a SlurmJob runs; what only its own red-box may read goes to no other."""
    return endpoint_named(kubectl, job.endpoint) if job.endpoint else cluster_named(kubectl, job.cluster)


def endpoint_named(kubectl: Kubectl, name: str) -> ClusterView:
    """This SlurmEndpoint, with the audience that the operator computes, too."""
    found = kubectl.json("get", SLURMENDPOINTS, "--", name)
    metadata = found["metadata"]
    audience = f"redbox.dev/ns/{metadata['namespace']}/{metadata['uid']}"
    return ClusterView({**found, "spec": {**(found.get("spec") or {}), "audience": audience}})


def cluster_named(kubectl: Kubectl, name: str) -> ClusterView:
    """This SlurmCluster, or the only one."""
    if name:
        return ClusterView(kubectl.json("get", SLURMCLUSTERS, "--", name))
    clusters = list_clusters(kubectl)
    if len(clusters) == 1:
        return clusters[0]
    names = ", ".join(cluster.name for cluster in clusters)
    raise Refusal(f"name one of the SlurmClusters: {names}" if names else "there is no SlurmCluster")
