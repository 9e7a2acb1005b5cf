"""Nodes by state, and the CPUs, memory and GPUs of each node and of each partition's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from redbox.core.gauges import FamilyOfGauges, NamedGauge, first_by, number
from redbox.slurm.commands.counted_nodes import CountedNode
from redbox.slurm.metrics.job_gauges import JobCounts, partition_job_gauges

NodeRule = Callable[[CountedNode], bool]


def _base(*names: str) -> NodeRule:
    return lambda node: node.base in names


def _flag(*names: str) -> NodeRule:
    return lambda node: bool(node.flags.intersection(names))


def _draining(node: CountedNode) -> bool:
    return "drain" in node.flags and node.base in {"allocated", "mixed"}


def _drained(node: CountedNode) -> bool:
    return "drain" in node.flags and not _draining(node)


def _takes_jobs(node: CountedNode) -> bool:
    """Whether jobs can start on it, now or later: Slurm counts drained nodes as idle, too."""
    return node.base in {"idle", "mixed", "allocated"} and not node.flags.intersection({"drain", "fail"})


STATES: Mapping[str, tuple[NodeRule, str]] = {
    "alloc": (_base("allocated"), "in Allocated state"),
    "blocked": (_flag("blocked"), "in Blocked state"),
    "cloud": (_flag("cloud"), "in the cloud"),
    "completing": (_flag("completing"), "with Completing flag"),
    "down": (_base("down"), "in Down state"),
    "drain": (_drained, "with Drain flag and without jobs"),
    "drained": (_drained, "that are drained"),
    "draining": (_draining, "in draining condition (Drain state with active jobs)"),
    "dyn_future": (_flag("dynamic_future"), "that are dynamic and in Future state"),
    "dyn_normal": (_flag("dynamic_norm"), "that are dynamic"),
    "external": (_flag("external"), "that are external"),
    "fail": (_flag("fail"), "with Fail flag"),
    "future": (_base("future"), "in Future state"),
    "idle": (_base("idle"), "in Idle state"),
    "invalid_reg": (_flag("invalid_reg"), "with Invalid Registration flag"),
    "maint": (_flag("maint", "maintenance"), "with Maintenance flag"),
    "mixed": (_base("mixed"), "in Mixed state"),
    "noresp": (_flag("not_responding"), "with Not Responding flag"),
    "planned": (_flag("planned"), "with Planned flag"),
    "power_down": (_flag("power_down"), "marked to be powered down"),
    "power_up": (_flag("power_up"), "marked to be powered up"),
    "powered_down": (_flag("powered_down"), "powered down"),
    "powering_down": (_flag("powering_down"), "powering down"),
    "powering_up": (_flag("powering_up"), "powering up"),
    "reboot_issued": (_flag("reboot_issued"), "with Reboot Issued flag"),
    "reboot_req": (_flag("reboot_requested"), "with Reboot Requested flag"),
    "resv": (_flag("reserved"), "with Reserved flag"),
    "unknown": (_base("unknown"), "in Unknown state"),
}
OTHERWISE_IN_PARTITIONS = {"completing": "cg", "noresp": "no_resp", "reboot_req": "reboot_requested"}
IN_MB = "in MB as slurmctld has it"
IN_PARTITIONS_ALONE = frozenset({"powering_down"})


def node_gauges(nodes: Mapping[str, CountedNode], most: int) -> FamilyOfGauges:
    """`/metrics/nodes`: each node once; the first by name where there are too many."""
    states = _states(nodes.values())
    gauges = [number("slurm_nodes", "Total number of nodes", len(nodes))]
    gauges += [
        number(f"slurm_nodes_{state}", f"Number of nodes {text}", states[state])
        for state, (_, text) in STATES.items()
        if state not in IN_PARTITIONS_ALONE
    ]
    shown, more = first_by(nodes, most, lambda _: 0)

    def gauge(name: str, text: str, value: Callable[[CountedNode], float]) -> NamedGauge:
        return NamedGauge(f"slurm_node_{name}", text, {node: value(nodes[node]) for node in shown}, "node")

    gauges += [
        gauge("cpus", "Total number of CPUs in the node", lambda node: node.cpus),
        gauge("cpus_alloc", "Allocated CPUs in the node", lambda node: node.cpus_alloc),
        gauge("cpus_effective", "CPUs that jobs can get", lambda node: node.cpus_effective),
        gauge("cpus_idle", "Idle CPUs in the node", _cpus_idle),
        gauge("gpus", "Total number of GPUs in the node", lambda node: node.gpus),
        gauge("gpus_alloc", "GPUs allocated by jobs on the node", lambda node: node.gpus_alloc),
        gauge("memory_bytes", f"Total memory of the node, {IN_MB}", lambda node: node.mem_mb),
        gauge("memory_alloc_bytes", f"Memory allocated to jobs, {IN_MB}", lambda node: node.mem_mb_alloc),
        gauge(
            "memory_effective_bytes",
            f"Memory that jobs can get, {IN_MB}",
            lambda node: node.mem_mb_effective,
        ),
        gauge("memory_free_bytes", f"Free memory of the node, {IN_MB}", lambda node: node.mem_mb_free),
        NamedGauge(
            "redbox_slurm_node_cpu_load",
            "The node's load: beside slurm_node_cpus_alloc what jobs make of their CPUs",
            {node: load for node in shown if (load := nodes[node].cpu_load) is not None},
            "node",
        ),
    ]
    return FamilyOfGauges(tuple(gauges), {"node": more})


def partition_gauges(
    names: Sequence[str],
    nodes: Iterable[CountedNode],
    jobs: Mapping[str, JobCounts],
    most: int,
) -> FamilyOfGauges:
    """`/metrics/partitions`; those with most jobs where there are too many."""
    members: dict[str, dict[str, CountedNode]] = {name: {} for name in names}
    for node in nodes:
        for partition in node.partitions:
            members.setdefault(partition, {})[node.name] = node
    counts = {name: jobs.get(name) or JobCounts() for name in members}
    shown, more = first_by(members, most, lambda name: counts[name].records)
    gauges = [number("slurm_partitions", "Total number of partitions", len(members))]
    gauges += partition_job_gauges({name: counts[name] for name in shown})
    gauges += _partition_node_gauges({name: list(members[name].values()) for name in shown})
    return FamilyOfGauges(tuple(gauges), {"partition": more})


def _partition_node_gauges(members: Mapping[str, Sequence[CountedNode]]) -> Iterable[NamedGauge]:
    def gauge(name: str, text: str, values: Mapping[str, float]) -> NamedGauge:
        return NamedGauge(f"slurm_partition_{name}", text, values, "partition")

    def total(name: str, text: str, value: Callable[[CountedNode], int]) -> NamedGauge:
        return gauge(name, text, {key: sum(map(value, nodes)) for key, nodes in members.items()})

    states = {key: _states(nodes) for key, nodes in members.items()}
    for state, (_, text) in STATES.items():
        name = OTHERWISE_IN_PARTITIONS.get(state, state)
        yield gauge(
            f"nodes_{name}", f"Number of nodes {text}", {key: of[state] for key, of in states.items()}
        )
    yield total("nodes", "Total nodes of the partition", lambda _: 1)
    yield NamedGauge(
        "redbox_slurm_partition_nodes_taking_jobs",
        "Number of nodes that are up and not drained, draining or failing",
        {key: sum(map(_takes_jobs, nodes)) for key, nodes in members.items()},
        "partition",
    )
    yield total("cpus", "Total CPUs of the partition", lambda node: node.cpus)
    yield total("gpus", "Total GPUs of the partition", lambda node: node.gpus)
    yield total("nodes_cpus_alloc", "Allocated CPUs of all nodes", lambda node: node.cpus_alloc)
    yield total("nodes_cpus_efctv", "CPUs of all nodes that jobs can get", lambda node: node.cpus_effective)
    yield total("nodes_cpus_idle", "Idle CPUs of all nodes", _cpus_idle)
    yield total("nodes_mem_alloc", f"Allocated memory of all nodes, {IN_MB}", lambda node: node.mem_mb_alloc)
    yield total(
        "nodes_mem_avail",
        f"Memory of all nodes that jobs can get, {IN_MB}",
        lambda node: node.mem_mb_effective,
    )
    yield total("nodes_mem_free", f"Free memory of all nodes, {IN_MB}", lambda node: node.mem_mb_free)
    yield total("nodes_mem_tot", f"Total memory of all nodes, {IN_MB}", lambda node: node.mem_mb)


def _states(nodes: Iterable[CountedNode]) -> Counter[str]:
    return Counter(state for node in nodes for state, (holds, _) in STATES.items() if holds(node))


def _cpus_idle(node: CountedNode) -> int:
    return max(0, node.cpus_effective - node.cpus_alloc)
