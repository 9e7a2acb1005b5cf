"""scontrol: the cluster's configuration and partitions; hold, release and requeue of single jobs."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from redbox.slurm.text.values import read_number, text_or_none
from redbox_api.models import PartitionLimits
from redbox_shared.sbatch_options import read_duration

SETTING = re.compile(r"^(\w+)\s*=\s?(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SlurmConfiguration:
    """The settings of slurm.conf that red-box depends on."""

    cluster_name: str = ""
    version: str = ""
    accounting: bool = False
    stores_environment: bool = False
    private_data: frozenset[str] = frozenset()
    min_job_age_s: int | None = None
    appends: bool = False
    enforces_partition_limits: bool = False
    federation: str | None = None  # by `read_federation`
    boot_time: str = ""


def configuration_argv() -> list[str]:
    return ["scontrol", "show", "config"]


def read_configuration(text: str) -> SlurmConfiguration:
    settings = {found[1].lower(): found[2].strip() for found in SETTING.finditer(text)}
    flags = set(settings.get("accountingstoreflags", "").lower().split(","))
    storage = settings.get("accountingstoragetype", "")
    private = {word.strip().lower() for word in settings.get("privatedata", "").split(",")}
    return SlurmConfiguration(
        cluster_name=settings.get("clustername", ""),
        version=settings.get("slurm_version", ""),
        accounting=text_or_none(storage) is not None and not storage.endswith("/none"),
        stores_environment=bool(flags & {"job_env", "job_script"}),
        private_data=frozenset(private - {"", "none", "(null)"}),
        min_job_age_s=read_number(settings.get("minjobage", "").partition(" ")[0]),
        appends=settings.get("jobfileappend", "0") != "0",
        boot_time=settings.get("boot_time", ""),
        enforces_partition_limits=settings.get("enforcepartlimits", "NO").upper() not in {"NO", "0"},
    )


def federation_argv() -> list[str]:
    return ["scontrol", "show", "federation"]


def read_federation(text: str) -> str | None:
    """The name of the cluster's federation; None where the output names none or is empty."""
    found = re.search(r"^Federation:\s*(\S+)", text, re.MULTILINE)
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition as configured."""

    name: str
    is_default: bool
    state: str
    limits: PartitionLimits


def partitions_argv() -> list[str]:
    return ["scontrol", "--oneliner", "--all", "show", "partition"]


def read_partitions(text: str) -> tuple[PartitionRow, ...]:
    """One line a partition; the administrator's names contain no blanks."""
    return tuple(
        read_partition(dict(word.partition("=")[::2] for word in line.split()))
        for line in text.splitlines()
        if line.startswith("PartitionName=")
    )


def read_partition(words: dict[str, str]) -> PartitionRow:
    return PartitionRow(
        name=words["PartitionName"],
        is_default=words.get("Default") == "YES",
        state=words.get("State", "UNKNOWN"),
        limits=PartitionLimits(
            max_time_s=read_duration(words.get("MaxTime", "")),
            default_time_s=read_duration(words.get("DefaultTime", "")),
            max_nodes=read_number(words.get("MaxNodes", "")),
            max_cpus_per_node=read_number(words.get("MaxCPUsPerNode", "")),
            max_mem_mb_per_node=read_number(words.get("MaxMemPerNode", "")),
        ),
    )


def action_argv(action: str, job_id: str) -> list[str]:
    """By id alone: scontrol has no other filter."""
    return ["scontrol", action, job_id]


def depend_argv(dependencies: Collection[str], job_id: str) -> list[str]:
    """Replaces all dependencies of a job; none removes them."""
    return ["scontrol", "update", f"JobId={job_id}", f"Dependency={','.join(dependencies)}"]
