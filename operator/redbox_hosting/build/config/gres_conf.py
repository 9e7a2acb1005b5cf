"""gres.conf: how slurmd finds the GPUs of a worker. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from redbox_hosting.api.names import node_name
from redbox_hosting.api.nodeset import NodeSet

AUTO_DETECT = {"nvidia.com/gpu": "nvidia", "amd.com/gpu": "rsmi"}
"""`nvidia` reads /proc and needs no library of NVIDIA's in the image."""


def gpus_of(node_set: NodeSet) -> tuple[str, int] | None:
    """The resource and number of GPUs in the limits of slurmd's container."""
    limits = node_set.spec.slurmd.get("resources", {}).get("limits", {})
    for resource in AUTO_DETECT:
        count = str(limits.get(resource, "0"))
        if count.isdecimal() and int(count):
            return resource, int(count)
    return None


def gres_conf(node_sets: Iterable[NodeSet], max_nodes: int) -> str:
    """One method for all nodes, or one for the nodes of each NodeSet where they differ.

    Without a line slurmd would choose a method itself.
    """
    found = {node_set.name: (node_set, gpus[0]) for node_set in node_sets if (gpus := gpus_of(node_set))}
    methods = {AUTO_DETECT[resource] for _, resource in found.values()}
    if not methods:
        return "AutoDetect=off\n"
    if len(methods) == 1:
        return f"AutoDetect={methods.pop()}\n"
    return "".join(
        f"NodeName={_every_node(node_set, max_nodes)} AutoDetect={AUTO_DETECT[resource]}\n"
        for node_set, resource in found.values()
    )


def _every_node(node_set: NodeSet, max_nodes: int) -> str:
    padding = node_set.spec.ordinal_padding
    stem = node_name(node_set.node_prefix, 0, padding)[: -max(1, padding)]
    return f"{stem}[{0:0{max(1, padding)}d}-{max_nodes - 1:0{max(1, padding)}d}]"
