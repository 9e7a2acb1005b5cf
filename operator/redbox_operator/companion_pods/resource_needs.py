"""The minimum resources of a job, as far as its fields give them. Pure.

#SBATCH lines of the script are left to Slurm: a resource that no field gives is not required here.
"""

from __future__ import annotations

from redbox_api.job_parts import Resources
from redbox_clusters.node_labels import Limit
from redbox_shared.sbatch_options import read_duration

MB_IN = {"K": 1 / 1024, "M": 1, "": 1, "G": 1024, "T": 1024 * 1024}


def needs_of(resources: Resources) -> dict[Limit, int]:
    """What a partition must allow one job; resources without a field are left out."""
    cpus = _cpus_per_node(resources)
    needs = {
        Limit.NODES: resources.nodes,
        Limit.CPUS_PER_NODE: cpus,
        Limit.MEM_MB_PER_NODE: _mem_mb_per_node(resources, cpus),
        Limit.GPUS_PER_NODE: _gpus(resources.gpus_per_node),
        Limit.TIME_S: read_duration(resources.time or ""),
    }
    return {limit: need for limit, need in needs.items() if need}


def whole_needs_of(resources: Resources) -> dict[str, int]:
    """The total resources of the job, by the names of the extended resources."""
    needs, nodes = needs_of(resources), resources.nodes or 1
    cpus = max(
        nodes * needs.get(Limit.CPUS_PER_NODE, 1), (resources.tasks or 1) * (resources.cpus_per_task or 1)
    )
    whole = {
        "nodes": nodes,
        "cpus": cpus,
        "mem": nodes * needs.get(Limit.MEM_MB_PER_NODE, 0),
        "gpus": nodes * needs.get(Limit.GPUS_PER_NODE, 0),
    }
    return {name: amount for name, amount in whole.items() if amount}


def _cpus_per_node(resources: Resources) -> int | None:
    per_task = resources.cpus_per_task
    on_a_node = resources.tasks_per_node
    if on_a_node is None and resources.tasks and resources.nodes:
        on_a_node = -(-resources.tasks // resources.nodes)
    return (on_a_node or 1) * (per_task or 1) if on_a_node or per_task else None


def _mem_mb_per_node(resources: Resources, cpus: int | None) -> int | None:
    if resources.mem_per_node:
        return _mb(resources.mem_per_node)
    return _mb(resources.mem_per_cpu) * (cpus or 1) if resources.mem_per_cpu else None


def _mb(amount: str) -> int:
    number = amount.rstrip("KMGT")
    return -int(-(int(number) * MB_IN[amount[len(number) :]]) // 1)


def _gpus(gpus: str | None) -> int | None:
    return int(gpus.rpartition(":")[2]) if gpus else None
