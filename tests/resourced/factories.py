"""SlurmClusters and Nodes as resourced has seen them, for tests of what it makes of them."""

from __future__ import annotations

from typing import Any

from redbox_api.client import RedboxClient
from redbox_api.models import Amounts, Partition
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_resourced.nodes.manifest import new_node
from redbox_resourced.nodes.node_view import NodeView, read_node
from redbox_resourced.partitions.partition_feed import PartitionFeed

NOTHING = Amounts(nodes=0, cpus=0, mem_mb=0)


def partition(name: str, **fields: Any) -> Partition:
    some = Amounts(nodes=2, cpus=8, mem_mb=8000)
    return Partition(
        name=name, **{"state": "UP", "total": some, "free": NOTHING, "node_states": {"idle": 2}, **fields}
    )


def slurm_cluster(name: str = "hpc1", **spec: Any) -> SlurmCluster:
    given = {
        "endpoint": "https://redbox.example.org",
        "caBundle": "",
        "audience": "redbox.dev/hpc1/x",
        "delivery": "Virtual",
    }
    return SlurmCluster.model_validate(
        {"metadata": {"name": name, "uid": f"uid-of-{name}"}, "spec": given | spec}
    )


def followed(*partitions: Partition, listed: bool = True, fault: str = "", **spec: Any) -> PartitionFeed:
    """As after red-box has named these."""
    return PartitionFeed(
        slurm_cluster(**spec),
        RedboxClient("https://redbox.example.org"),
        lambda: None,
        {partition.name: partition for partition in partitions},
        listed=listed,
        fault=fault,
    )


def node(name: str, cluster: str = "hpc1", **changed: Any) -> NodeView:
    """The virtual node of a partition."""
    made = new_node(cluster, name)
    made["metadata"] |= {"uid": f"uid-of-{name}", "resourceVersion": "1", **changed}
    return read_node(made)


def real_node(name: str, labels: dict[str, str], managers: tuple[str, ...] = ()) -> NodeView:
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {".": {}, "f:some.redbox.dev/key": {}}}}
    managed = [{"manager": manager, "operation": "Apply", "fieldsV1": fields} for manager in managers]
    metadata = {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "1", "labels": labels}
    return read_node({"metadata": {**metadata, "managedFields": managed}})
