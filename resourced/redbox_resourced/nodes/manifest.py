"""A partition as a Node: what is said of it, by three field managers. Pure.

That the node is served is said always; where Slurm has the partition, and what it offers, only while red-box
has told: so a red-box that is away takes no label, no capacity and no cordon back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redbox_kube.names import (
    ANNOTATION_PARTITION,
    LABEL_CLUSTER,
    LABEL_DEFAULT_PARTITION,
    LABEL_PARTITION,
    LABEL_VIRTUAL,
    TAINT_SLURM,
    TAINT_UNREACHABLE,
)
from redbox_kube.node_labels import dns_label, key_part, partition_label, virtual_node
from redbox_resourced.nodes.node_view import MANAGER, PROVIDER, NodeView
from redbox_resourced.nodes.readiness import ServingStatus
from redbox_resourced.nodes.server_side_apply import ApplyConfiguration
from redbox_resourced.partitions.advertised import (
    AdvertisedPartition,
    annotations_of,
    labels_of,
    legacy_labels_of,
    resources_of,
)
from redbox_resourced.partitions.availability import PartitionAvailability

Object = dict[str, Any]
AVAILABILITY_MANAGER = f"{MANAGER}.standing"
CAPACITY_MANAGER = f"{MANAGER}.offer"
PODS = "100000"
METRICS_PATH = "metrics.k8s.io/resource-metrics-path"
"""Where metrics-server asks: all nodes share one address, and each would tell of all pods else."""
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True)
class KubeletAddress:
    """Where the API server finds the kubelet API of all virtual nodes."""

    ip: str
    port: int


@dataclass(frozen=True)
class NodeVersions:
    """What `kubectl get nodes` shows."""

    kubernetes: str
    redbox: str
    slurm: str


@dataclass(frozen=True)
class NodeCondition:
    """One of the node's."""

    kind: str
    status: str
    reason: str
    message: str

    def written(self, seen: NodeView, now: str) -> Object:
        """With the time since when its status is what it is."""
        before, since = seen.conditions.get(self.kind, ("", ""))
        at = since if before == self.status and since else now
        return {
            "type": self.kind,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": at,
            "lastHeartbeatTime": at,
        }


def new_node(cluster: str, partition: str) -> Object:
    """What a Node must have before anybody sees it: the taint, and the labels by which it is known again."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": virtual_node(partition, cluster), **_identity(cluster, partition)},
        "spec": {"providerID": provider_id(cluster, partition), "taints": [_taint(TAINT_SLURM)]},
    }


def provider_id(cluster: str, partition: str) -> str:
    """Tells a node of ours from one that happens to have its name."""
    return f"{PROVIDER}{dns_label(cluster)}/{dns_label(partition)}"


def taints(seen: tuple[Mapping[str, Any], ...], *, unreachable: bool) -> list[Mapping[str, Any]]:
    """Others' as they are, ours as they are to be. The list is one field: it has no owners of its parts."""
    ours = [TAINT_SLURM, TAINT_UNREACHABLE] if unreachable else [TAINT_SLURM]
    others = [one for one in seen if one["key"] not in {TAINT_SLURM, TAINT_UNREACHABLE}]
    return [*others, *map(_taint, ours)]


def identity_configurations(cluster: str, partition: str) -> list[ApplyConfiguration]:
    """By what users, their pods and our own watch of pods find it."""
    return [ApplyConfiguration(MANAGER, {"metadata": _identity(cluster, partition)})]


def serving_configurations(
    seen: NodeView, served: ServingStatus, unreachable: str, address: KubeletAddress, now: str
) -> list[ApplyConfiguration]:
    """Whether it is served, where it answers, and whether red-box can be reached."""
    reachable = (
        NodeCondition("RedBoxReachable", "False", "Unreachable", unreachable)
        if unreachable
        else NodeCondition("RedBoxReachable", "True", "Reachable", "red-box answers.")
    )
    ready = (
        NodeCondition("Ready", "False", "NotServed", served.trouble)
        if served.trouble
        else NodeCondition("Ready", "True", "Served", f"resourced serves this node. {served.note}".strip())
    )
    none = [
        NodeCondition(kind, "False", "Virtual", "A virtual node has none of its own.") for kind in PRESSURES
    ]
    status = {
        "addresses": [{"type": "InternalIP", "address": address.ip}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port}},
        "conditions": [one.written(seen, now) for one in (ready, reachable, *none)],
    }
    return [ApplyConfiguration(MANAGER, {"status": status}, "status")]


def availability_configurations(
    seen: NodeView, standing: PartitionAvailability, now: str
) -> list[ApplyConfiguration]:
    """Whether the partition takes jobs: where not, the node is cordoned, but first says why.

    A cordon by hand is its owner's, and left alone.
    """
    word = "True" if standing.takes_jobs else "False"
    cordon = {} if standing.takes_jobs else {"unschedulable": True}
    condition = NodeCondition("PartitionUp", word, standing.reason, standing.message).written(seen, now)
    return [
        ApplyConfiguration(AVAILABILITY_MANAGER, {"status": {"conditions": [condition]}}, "status"),
        # The providerID is said beside it: a claim that named nothing of the spec could take all of it away.
        ApplyConfiguration(AVAILABILITY_MANAGER, {"spec": {"providerID": seen.provider_id, **cordon}}),
    ]


def capacity_configurations(
    offer: AdvertisedPartition, versions: NodeVersions, *, old_keys: bool
) -> list[ApplyConfiguration]:
    """What the partition has."""
    total = offer.amounts
    capacity = {
        "cpu": str(total["cpus"]),
        "memory": f"{total['mem']}Mi",
        "pods": PODS,
        **resources_of(offer),
    }
    node = virtual_node(offer.partition, offer.cluster)
    annotations = {**annotations_of(offer), METRICS_PATH: f"/metrics/resource/{node}"}
    metadata = {"labels": _labels(offer, old_keys=old_keys), "annotations": annotations}
    status = {"capacity": capacity, "allocatable": capacity, "nodeInfo": _node_info(versions)}
    return [
        ApplyConfiguration(CAPACITY_MANAGER, {"metadata": metadata}),
        ApplyConfiguration(CAPACITY_MANAGER, {"status": status}, "status"),
    ]


def _identity(cluster: str, partition: str) -> Object:
    labels = {
        LABEL_VIRTUAL: "true",
        LABEL_CLUSTER: partition_label(cluster),
        LABEL_PARTITION: partition_label(partition),
    }
    return {"labels": labels, "annotations": {ANNOTATION_PARTITION: partition}}


def _labels(offer: AdvertisedPartition, *, old_keys: bool) -> dict[str, str]:
    place = key_part(f"redbox-{offer.cluster}")
    return {
        "kubernetes.io/hostname": key_part(virtual_node(offer.partition, offer.cluster)),
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "topology.kubernetes.io/region": place,
        "topology.kubernetes.io/zone": place,
        **({LABEL_DEFAULT_PARTITION: "true"} if offer.is_default else {}),
        **labels_of(offer),
        **(legacy_labels_of(offer) if old_keys else {}),
    }


def _node_info(versions: NodeVersions) -> Object:
    return {
        "kubeletVersion": f"{versions.kubernetes}+redbox.{versions.redbox}",
        "osImage": f"Slurm {versions.slurm}".strip(),
        "containerRuntimeVersion": f"slurm://{versions.slurm}",
        "operatingSystem": "linux",
        "architecture": "",
        "kernelVersion": "",
        "kubeProxyVersion": "",
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }


def _taint(key: str) -> dict[str, str]:
    return {"key": key, "effect": "NoSchedule"}
