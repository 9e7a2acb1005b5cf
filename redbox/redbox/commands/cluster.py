"""`redbox whoami` and `redbox partitions`: who you are here, and what there is."""

from __future__ import annotations

from redbox.commands.local_client import SocketOption, call
from redbox.commands.output import Columns, OutputFormat, OutputOption, show_list, show_one
from redbox.core.durations import Duration
from redbox_api.client import RedboxClient
from redbox_api.models import Partition, PartitionList, WhoAmI

COLUMNS: Columns = {
    "PARTITION": lambda one: f"{one.name}*" if one.is_default else one.name,
    "STATE": lambda one: one.state,
    "NODES": lambda one: _free_of(one, "nodes"),
    "CPUS": lambda one: _free_of(one, "cpus"),
    "MEMORY": lambda one: f"{one.total.mem_mb} MB",
    "GPUS": lambda one: _free_of(one, "gpus"),
    "TIME LIMIT": lambda one: _limit(one.limits.max_time_s),
    "FEATURES": lambda one: one.features,
}


def whoami(*, output: OutputOption = OutputFormat.TABLE, socket: SocketOption = None) -> None:
    """Tell who you are to this red-box, and what you may do."""

    async def do(client: RedboxClient) -> WhoAmI:
        return await client.whoami()

    show_one(call(socket, do), output)


def partitions(*, output: OutputOption = OutputFormat.TABLE, socket: SocketOption = None) -> None:
    """List the partitions that you may use; nodes, CPUs and GPUs as free/all."""

    async def do(client: RedboxClient) -> PartitionList:
        return await client.partitions()

    show_list(call(socket, do).items, COLUMNS, output)


def _free_of(partition: Partition, what: str) -> str:
    return f"{getattr(partition.free, what)}/{getattr(partition.total, what)}"


def _limit(seconds: int | None) -> str:
    return "none" if seconds is None else str(Duration(seconds))
