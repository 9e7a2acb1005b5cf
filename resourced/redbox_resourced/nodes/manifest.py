"""A partition as a Node: the fields of its three field managers. Pure.

Whether the node is served is always written. Availability and capacity are written only after red-box has
reported them: so an unreachable red-box takes no label, no capacity and no cordon back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redbox_clusters.names import (
    ANNOTATION_PARTITION,
    LABEL_CLUSTER,
    LABEL_DEFAULT_PARTITION,
    LABEL_PARTITION,
    LABEL_VIRTUAL,
    PROVIDER,
    TAINT_SLURM,
    TAINT_UNREACHABLE,
)
from redbox_clusters.node_labels import dns_label, key_part, partition_label, virtual_node
from redbox_kube.api.objects import Object
from redbox_resourced.nodes.node_view import MANAGER, NodeView
from redbox_resourced.nodes.server_side_apply import ApplyConfiguration
from redbox_resourced.partitions.advertised import (
    AdvertisedPartition,
    annotations_of,
    labels_of,
    legacy_labels_of,
    resources_of,
)
from redbox_resourced.partitions.availability import PartitionAvailability

AVAILABILITY_MANAGER = f"{MANAGER}.availability"
CAPACITY_MANAGER = f"{MANAGER}.capacity"
PODS = "100000"
ROOM = {"cpu": "1000000000", "memory": "32Pi", "ephemeral-storage": "32Pi", "pods": "10000000"}
"""Far above any partition. The scheduler multiplies by 100 in 64 bits: 64Pi would be near the limit."""
ROOM_OF_EXTENDED = "1000000000"
GPUS = ("nvidia.com/gpu", "amd.com/gpu")
"""Requested by pods; the job then requests a GPU of its partition, of whichever make."""
METRICS_PATH = "metrics.k8s.io/resource-metrics-path"
"""The path for metrics-server: all nodes share one address, so that /metrics/resource has the pods of all."""
UNKNOWN_NODE_INFO = ("architecture", "kernelVersion", "kubeProxyVersion", "machineID", "systemUUID", "bootID")
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True)
class KubeletAddress:
    """Where the API server reaches the kubelet API of all virtual nodes."""

    ip: str
    port: int


@dataclass(frozen=True)
class ServingStatus:
    """Whether this process serves virtual nodes."""

    problem: str = ""
    """Why it does not; empty where it does."""
    note: str = ""
    """The action that an administrator has yet to take, if any."""


@dataclass(frozen=True)
class NodeCondition:
    """A condition of the Node."""

    kind: str
    status: str
    reason: str
    message: str

    def to_json(self, node: NodeView, now: str) -> Object:
        before, since = node.conditions.get(self.kind, ("", ""))
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
    """Created with the taint, which must precede any pod, and with the fields that identify the Node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": virtual_node(partition, cluster), **_identity(cluster, partition)},
        "spec": {"providerID": provider_id(cluster, partition), "taints": [_taint(TAINT_SLURM)]},
    }


def provider_id(cluster: str, partition: str) -> str:
    """Distinguishes a virtual node from a foreign Node of the same name."""
    return f"{PROVIDER}{dns_label(cluster)}/{dns_label(partition)}"


def taints(current: tuple[Mapping[str, Any], ...], *, unreachable: bool) -> list[Mapping[str, Any]]:
    """Foreign taints as they are, then ours: the list is a single field, its items have no owners."""
    ours = [TAINT_SLURM, TAINT_UNREACHABLE] if unreachable else [TAINT_SLURM]
    foreign = [taint for taint in current if taint["key"] not in {TAINT_SLURM, TAINT_UNREACHABLE}]
    return [*foreign, *map(_taint, ours)]


def identity_configurations(cluster: str, partition: str) -> list[ApplyConfiguration]:
    """Labels and annotation by which users, pods and the pod informer select the Node."""
    return [ApplyConfiguration(MANAGER, {"metadata": _identity(cluster, partition)})]


def serving_configurations(
    node: NodeView, serving: ServingStatus, unreachable: str, address: KubeletAddress, now: str
) -> list[ApplyConfiguration]:
    """Whether the Node is served, where, and whether red-box can be reached."""
    reachable = (
        NodeCondition("RedBoxReachable", "False", "Unreachable", unreachable)
        if unreachable
        else NodeCondition("RedBoxReachable", "True", "Reachable", "red-box answers.")
    )
    ready = (
        NodeCondition("Ready", "False", "NotServed", serving.problem)
        if serving.problem
        else NodeCondition("Ready", "True", "Served", f"resourced serves this node. {serving.note}".strip())
    )
    pressures = [
        NodeCondition(kind, "False", "Virtual", "A virtual node has none of its own.") for kind in PRESSURES
    ]
    status = {
        "addresses": [{"type": "InternalIP", "address": address.ip}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port}},
        "conditions": [condition.to_json(node, now) for condition in (ready, reachable, *pressures)],
    }
    return [ApplyConfiguration(MANAGER, {"status": status}, "status")]


def availability_configurations(
    node: NodeView, availability: PartitionAvailability, now: str
) -> list[ApplyConfiguration]:
    """The condition PartitionUp, and after it the cordon where the partition accepts no jobs.

    A cordon by hand belongs to another field manager and stays.
    """
    word, cordon = ("True", {}) if availability.accepts_jobs else ("False", {"unschedulable": True})
    condition = NodeCondition("PartitionUp", word, availability.reason, availability.message)
    status = {"conditions": [condition.to_json(node, now)]}
    return [
        ApplyConfiguration(AVAILABILITY_MANAGER, {"status": status}, "status"),
        # With the providerID: a configuration without any field of the spec could remove the whole spec.
        ApplyConfiguration(AVAILABILITY_MANAGER, {"spec": {"providerID": node.provider_id, **cordon}}),
    ]


def capacity_configurations(
    advertised: AdvertisedPartition,
    slurm_version: str,
    kubelet_version: str,
    *,
    old_keys: bool,
    has_room: bool,
) -> list[ApplyConfiguration]:
    """`has_room`: what is allocatable is far above the capacity.

    The scheduler adds up all pods of a node, those that wait in Slurm's queue among them: nothing would ever
    queue in Slurm. Whether a job can ever fit is decided at its submit.
    """
    capacity = {
        "cpu": str(advertised.amounts["cpus"]),
        "memory": f"{advertised.amounts['mem']}Mi",
        "pods": PODS,
        **resources_of(advertised),
    }
    allocatable = _room(advertised) if has_room else capacity
    node = virtual_node(advertised.partition, advertised.cluster)
    annotations = {**annotations_of(advertised), METRICS_PATH: f"/metrics/resource/{node}"}
    metadata = {"labels": _labels(advertised, old_keys=old_keys), "annotations": annotations}
    node_info = {
        **dict.fromkeys(UNKNOWN_NODE_INFO, ""),
        "kubeletVersion": kubelet_version,
        "osImage": f"Slurm {slurm_version}".strip(),
        "containerRuntimeVersion": f"slurm://{slurm_version}",
        "operatingSystem": "linux",
    }
    status = {"capacity": capacity, "allocatable": allocatable, "nodeInfo": node_info}
    return [
        ApplyConfiguration(CAPACITY_MANAGER, {"metadata": metadata}),
        ApplyConfiguration(CAPACITY_MANAGER, {"status": status}, "status"),
    ]


def _room(advertised: AdvertisedPartition) -> dict[str, str]:
    """Extended resources only where the partition has some: a pod stays Pending where it has none."""
    extended = [key for key, amount in resources_of(advertised).items() if amount != "0"]
    gpus = GPUS if advertised.amounts["gpus"] else ()
    return {**ROOM, **dict.fromkeys((*extended, *gpus), ROOM_OF_EXTENDED)}


def _identity(cluster: str, partition: str) -> Object:
    labels = {
        LABEL_VIRTUAL: "true",
        "kubernetes.io/os": "linux",
        LABEL_CLUSTER: partition_label(cluster),
        LABEL_PARTITION: partition_label(partition),
    }
    return {"labels": labels, "annotations": {ANNOTATION_PARTITION: partition}}


def _labels(advertised: AdvertisedPartition, *, old_keys: bool) -> dict[str, str]:
    zone = key_part(f"redbox-{advertised.cluster}")
    return {
        "kubernetes.io/hostname": key_part(virtual_node(advertised.partition, advertised.cluster)),
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "topology.kubernetes.io/region": zone,
        "topology.kubernetes.io/zone": zone,
        **({LABEL_DEFAULT_PARTITION: "true"} if advertised.is_default else {}),
        **labels_of(advertised),
        **(legacy_labels_of(advertised) if old_keys else {}),
    }


def _taint(key: str) -> dict[str, str]:
    return {"key": key, "effect": "NoSchedule"}
