"""`redbox whoami` and `redbox partitions`."""

from __future__ import annotations

from operator import attrgetter

from redbox.commands.local_client import SocketOption, call
from redbox.commands.output import Columns, OutputFormat, OutputOption, show_list, show_one
from redbox.core.durations import Duration
from redbox_api.models import Partition

COLUMNS: Columns = {
    "PARTITION": lambda partition: f"{partition.name}*" if partition.is_default else partition.name,
    "STATE": attrgetter("state"),
    "NODES": lambda partition: _free_of(partition, "nodes"),
    "CPUS": lambda partition: _free_of(partition, "cpus"),
    "MEMORY": lambda partition: f"{partition.total.mem_mb} MB",
    "GPUS": lambda partition: _free_of(partition, "gpus"),
    "TIME LIMIT": lambda partition: _limit(partition.limits.max_time_s),
    "FEATURES": attrgetter("features"),
}


def whoami(*, output: OutputOption = OutputFormat.TABLE, socket: SocketOption = None) -> None:
    """Show your identity, Unix user and roles at this red-box."""
    show_one(call(socket, lambda client: client.whoami()), output)


def partitions(*, output: OutputOption = OutputFormat.TABLE, socket: SocketOption = None) -> None:
    """List the partitions that you may use; nodes, CPUs and GPUs as free/all."""
    show_list(call(socket, lambda client: client.partitions()).items, COLUMNS, output)


def _free_of(partition: Partition, what: str) -> str:
    return f"{getattr(partition.free, what)}/{getattr(partition.total, what)}"


def _limit(seconds: int | None) -> str:
    return "none" if seconds is None else str(Duration(seconds))
