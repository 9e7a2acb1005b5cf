"""`info`: partitions, their limits, nodes and free resources, in sinfo's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kubectl_slurm.errors import EXIT_FAILED
from kubectl_slurm.options import invocation_of, parser_of
from kubectl_slurm.slurmjobs.clusters import ListedPartition, list_clusters, no_partition
from kubectl_slurm.terminal.documents import as_json, as_yaml, listing
from kubectl_slurm.terminal.screen import note, one_line
from kubectl_slurm.terminal.table import Cell, Column, Row, render
from kubectl_slurm.terminal.times import limit, megabytes

TEXT = "Partitions, their limits, their nodes by state, and what is free of them: free/total."
CLUSTER = Column("CLUSTER", importance=8)
COLUMNS = (
    Column("PARTITION", importance=9),
    Column("AVAIL", importance=4),
    Column("TIMELIMIT", right=True, importance=5),
    Column("NODES", right=True, importance=6),
    Column("CPUS", right=True, importance=7),
    Column("MEMORY", right=True, importance=3),
    Column("GPUS", right=True, importance=3),
    Column("STATES", importance=8),
)
WIDE = (
    Column("DEFAULTTIME", right=True, importance=1),
    Column("MAXNODES", right=True, importance=2),
    Column("MAXCPUS/NODE", right=True, importance=1),
    Column("MAXMEM/NODE", right=True, importance=1),
    Column("LARGESTNODE", importance=1),
    Column("REASON", importance=2),
)


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = parser_of(command, TEXT)
    parser.add_argument("-p", "--partition", metavar="NAMES", help="only these: a,b")
    parser.add_argument("--cluster", metavar="NAME", help="only of this SlurmCluster or SlurmEndpoint")
    parser.add_argument("-o", "--output", choices=("wide", "json", "yaml", "name"), help="another form")
    parser.add_argument("--noheader", action="store_true", help="no headings")
    options = parser.parse_args(words)
    call = invocation_of(options, given, environment)
    clusters = [cluster for cluster in list_clusters(call.kubectl) if options.cluster in {None, cluster.name}]
    if not clusters:
        wanted = f" {options.cluster}" if options.cluster else ""
        note(
            f"There is no SlurmCluster{wanted}, and no such SlurmEndpoint here: an administrator applies the "
            "SlurmCluster that `redbox init` prints."
        )
        return 1
    for cluster in clusters:
        if cluster.trouble:
            note(f"{cluster.name} may be shown as it was: {one_line(cluster.trouble)}")
    wanted_names = options.partition.split(",") if options.partition else None
    found = [
        partition
        for cluster in clusters
        for partition in cluster.partitions
        if wanted_names is None or partition.name in wanted_names
    ]
    missing = {*(wanted_names or ())} - {partition.name for partition in found}
    if missing:
        note(f"kubectl slurm: {no_partition(missing, clusters)}")
    if missing and not found:
        return EXIT_FAILED
    match options.output:
        case "json":
            call.screen.write(as_json(listing([cluster.obj for cluster in clusters])))
        case "yaml":
            call.screen.write(as_yaml(listing([cluster.obj for cluster in clusters])))
        case "name":
            call.screen.write("".join(f"{one_line(partition.name)}\n" for partition in found))
        case _:
            wide, several = options.output == "wide", len(clusters) > 1
            columns = [*((CLUSTER,) if several else ()), *COLUMNS, *(WIDE if wide else ())]
            rows = [_row(partition, several=several, wide=wide) for partition in found]
            call.screen.write(render(columns, rows, call.screen, headings=not options.noheader))
    return EXIT_FAILED if missing else 0


def _row(partition: ListedPartition, *, several: bool, wide: bool) -> Row:
    state = partition.state
    row: list[str | Cell] = [
        *((partition.cluster,) if several else ()),
        f"{partition.name}*" if partition.is_default else partition.name,
        Cell(state or "?", "" if state in {"up", ""} else "red"),
        limit(partition.limit("maxTimeS")),
        *(_share(partition, name) for name in ("nodes", "cpus")),
        _share(partition, "memMb", shown=megabytes),
        _share(partition, "gpus"),
        _states(partition.node_states) or "?",
    ]
    return [*row, *_limits(partition)] if wide else row


def _limits(partition: ListedPartition) -> list[str]:
    default, memory = partition.limit("defaultTimeS"), partition.limit("maxMemMbPerNode")
    cpus, largest = partition.amount("largestNode", "cpus"), partition.amount("largestNode", "memMb")
    gpus = partition.amount("largestNode", "gpus")
    node = f"{cpus} CPUs, {megabytes(largest or 0)}" + (f", {gpus} GPUs" if gpus else "") if cpus else ""
    return [
        limit(default) if default is not None else "",
        *(_number(partition.limit(name)) for name in ("maxNodes", "maxCpusPerNode")),
        megabytes(memory) if memory is not None else "unlimited",
        node,
        str(partition.obj.get("reason") or ""),
    ]


def _number(value: int | None) -> str:
    return "unlimited" if value is None else str(value)


def _share(partition: ListedPartition, name: str, shown: Callable[[float], str] = str) -> str:
    """free/total."""
    free, total = partition.amount("free", name), partition.amount("total", name)
    if total is None:
        return "?"
    return f"{shown(free or 0)}/{shown(total)}" if total else "0"


def _states(nodes: Mapping[str, int]) -> str:
    """2 idle, 1 mixed: the most common first."""
    ordered = sorted(nodes.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {state}" for state, count in ordered)
