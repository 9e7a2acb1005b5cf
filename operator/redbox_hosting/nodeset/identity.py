"""Whether a node's record belongs to a pod. Pure."""

from __future__ import annotations

from enum import StrEnum

from redbox_hosting.nodeset.observed import WorkerPod
from redbox_hosting.slurm.answers import RestNode


class Identity(StrEnum):
    """The pod of a node's record."""

    OWN = "Own"
    ANOTHER = "Another"
    UNKNOWN = "Unknown"


def identity_of(pod: WorkerPod, node: RestNode) -> Identity:
    """By the instance id, which is the pod's uid.

    26.05 drops it at every power-up, and both releases at POWERED_DOWN: then the address decides. After a
    power cycle it is no address, but the node's name; any other one is of a host that is not this pod.
    """
    if node.instance_id:
        return Identity.OWN if node.instance_id == pod.uid else Identity.ANOTHER
    if pod.address and node.address == pod.address:
        return Identity.OWN
    return Identity.UNKNOWN if node.address in {"", node.name, "127.0.0.1"} else Identity.ANOTHER
