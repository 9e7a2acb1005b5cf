"""The partitions of a cluster as lines of slurm.conf, and their removal in three steps. Pure.

Slurm ends the running jobs of a partition whose line is gone. So a partition that is to go is set to DRAIN,
which lets jobs run and refuses new ones; its line goes when Slurm was seen with that state and with no job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redbox_hosting.api.controller import PartitionFields
from redbox_hosting.api.fields import Sharing
from redbox_hosting.api.nodeset import NodeSet
from redbox_shared.hosted_settings.lines import ConfLine, ConfRefusal, read_options

EXCLUSIVE = ("OverSubscribe", "EXCLUSIVE")
DRAINING = ("State", "DRAIN")
NAME_OR_LIST = re.compile(r"(?:[^,\[]+|\[[^\]]*\]?)+")
"""A name, or a list in brackets, which has commas of its own. In linear time: users write it."""
NOT_A_NODE_SET = re.compile(r"\[|-[0-9]+$|^ALL$", re.IGNORECASE)
"""Names of nodes end with a number, and names of NodeSets cannot."""


@dataclass(frozen=True, slots=True)
class RemovedPartition:
    """A partition that slurmctld has and no object asks for.

    `draining`: slurmctld was seen to run with its State=DRAIN. `jobs` are those in it that have not ended;
    None where Slurm did not answer.
    """

    line: ConfLine
    draining: bool = False
    jobs: int | None = None

    @property
    def can_go(self) -> bool:
        return self.draining and self.jobs == 0


@dataclass(frozen=True, slots=True)
class PartitionLines:
    """The lines of the partitions, and what was refused."""

    lines: tuple[ConfLine, ...]
    refused: tuple[ConfRefusal, ...]


def partition_lines(
    fields: Sequence[PartitionFields],
    extra: Iterable[ConfLine],
    node_sets: Sequence[NodeSet],
    removed: Iterable[RemovedPartition],
) -> PartitionLines:
    """Those of the Controller, of its extraConf, of NodeSets, and those that are not gone yet.

    Of several with one name the first one counts, and the others are refused.
    """
    refused: list[ConfRefusal] = []
    lines: dict[str, ConfLine] = {}
    wanted = [_of_fields(partition, node_sets) for partition in fields]
    wanted += [_shared_as(line, node_sets) for line in extra]
    for node_set in node_sets:
        if node_set.spec.partition and node_set.spec.partition.enabled:
            options, why = read_options(node_set.spec.partition.config or "", node_set.name)
            refused += why
            own = tuple(option for option in options if option[0] != "Nodes")
            line = ConfLine("PartitionName", node_set.name, (("Nodes", node_set.name), *own))
            wanted.append(_shared_as(line, node_sets))
    for line in wanted:
        if line.name in lines:
            refused.append(ConfRefusal(f"a second partition {line.name}", "choose another name"))
        lines.setdefault(line.name, line)
    for partition in removed:
        if not partition.can_go and partition.line.name not in lines:
            lines[partition.line.name] = _draining(partition.line)
    return PartitionLines(tuple(lines.values()), tuple(refused))


def node_set_names(line: ConfLine) -> list[str]:
    """The NodeSets that a partition has."""
    names = dict(line.options).get("Nodes", "").strip('"')
    return [name for name in NAME_OR_LIST.findall(names) if not NOT_A_NODE_SET.search(name)]


def _of_fields(partition: PartitionFields, node_sets: Sequence[NodeSet]) -> ConfLine:
    nodes = partition.node_sets or [node_set.name for node_set in node_sets]
    options = {
        "Nodes": ",".join(nodes),
        "Default": "YES" if partition.default else "",
        "MaxTime": partition.max_time or "UNLIMITED",
        "DefaultTime": partition.default_time or "",
        "DefMemPerCPU": str(partition.def_mem_per_cpu or ""),
        "QOS": partition.qos or "",
        "AllowAccounts": ",".join(partition.allow_accounts),
        "AllowGroups": ",".join(partition.allow_groups),
    }
    given = tuple((key, value) for key, value in options.items() if value)
    return _shared_as(ConfLine("PartitionName", partition.name, given), node_sets)


def _shared_as(line: ConfLine, node_sets: Sequence[NodeSet]) -> ConfLine:
    """One job has a node to itself, unless each NodeSet of the partition lets jobs share its nodes."""
    names = node_set_names(line) or [node_set.name for node_set in node_sets]
    sharing = {node_set.name: node_set.spec.redbox.sharing for node_set in node_sets}
    shared = bool(names) and all(sharing.get(name) is Sharing.SHARED for name in names)
    options = line.options if shared else (*line.options, EXCLUSIVE)
    if "State" not in dict(options):
        options = (*options, ("State", "UP"))
    return ConfLine(line.key, line.name, options)


def _draining(line: ConfLine) -> ConfLine:
    options = (option for option in line.options if option[0] not in {"State", "Default"})
    return ConfLine(line.key, line.name, (*options, DRAINING))
