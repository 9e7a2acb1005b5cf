"""An administrator's overrides of partitions: limits, and features that Slurm does not report.

The fields are those of the Sylabs operator's configuration: an old file works once it is put under its
cluster's name. A limit that is not set is Slurm's; `auto_…: true` states that explicitly and wins over a
number.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from redbox_clusters.node_labels import Limit

SECONDS = {"h": 3600, "m": 60, "s": 1}
DURATION = re.compile(r"(\d+[hms])+")


class InvalidOverrides(Exception):
    """The overrides file cannot be used; the message names the place and the cause."""


def _seconds(given: object) -> object:
    if isinstance(given, str) and DURATION.fullmatch(given):
        return sum(int(part[:-1]) * SECONDS[part[-1]] for part in re.findall(r"\d+[hms]", given))
    return given


Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[int, Field(ge=1, le=2**53), BeforeValidator(_seconds)]


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AdditionalFeature(_StrictModel):
    """A feature of the partition; with a quantity it is an extended resource as well."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    version: Annotated[str, Field(max_length=256, coerce_numbers_to_str=True)] = ""
    quantity: Count = 0


class PartitionOverride(_StrictModel):
    """What replaces Slurm's values for one partition."""

    auto_nodes: bool = False
    auto_cpu_per_node: bool = False
    auto_mem_per_node: bool = False
    auto_gpu_per_node: bool = False
    auto_wall_time: bool = False
    nodes: Count | None = None
    cpu_per_node: Count | None = None
    mem_per_node: Annotated[Count | None, Field(description="In MB.")] = None
    gpu_per_node: Count | None = None
    wall_time: Annotated[Seconds | None, Field(description="10h, 1h30m, or seconds.")] = None
    additional_features: list[AdditionalFeature] = []

    def limits(self) -> dict[Limit, int]:
        fixed = {
            Limit.NODES: (self.nodes, self.auto_nodes),
            Limit.CPUS_PER_NODE: (self.cpu_per_node, self.auto_cpu_per_node),
            Limit.MEM_MB_PER_NODE: (self.mem_per_node, self.auto_mem_per_node),
            Limit.GPUS_PER_NODE: (self.gpu_per_node, self.auto_gpu_per_node),
            Limit.TIME_S: (self.wall_time, self.auto_wall_time),
        }
        return {limit: value for limit, (value, auto) in fixed.items() if value is not None and not auto}


NO_OVERRIDE = PartitionOverride()


class Overrides(_StrictModel):
    """By cluster, then by partition, both by their names in Slurm."""

    clusters: dict[str, dict[str, PartitionOverride]] = {}

    def of(self, cluster: str, partition: str) -> PartitionOverride:
        return self.clusters.get(cluster, {}).get(partition, NO_OVERRIDE)


@lru_cache(maxsize=1)
def read_overrides(text: str, source: str) -> Overrides:
    """Parse and validate; raises InvalidOverrides."""
    try:
        document: Any = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: 2026-13-01 has the form of a date
        raise InvalidOverrides(f"{source} is not valid YAML: {error}") from error
    try:
        return Overrides.model_validate({} if document is None else document)
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}" for item in error.errors()
        )
        raise InvalidOverrides(f"{source}: {'; '.join(problems)}") from error


class OverridesFile:
    """The mounted file, read again when it changes; after an invalid change the last valid content stays."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.current = Overrides()
        self.fault = ""
        """Why the current file is not used; empty where it is."""

    def load(self) -> None:
        """Read it at startup; raises InvalidOverrides."""
        if self._path is not None:
            self.current = self._read(self._path)

    def reload(self) -> bool:
        """Read it again; True if its content or its fault has changed."""
        if self._path is None:
            return False
        before, fault = self.current, self.fault
        try:
            self.current, self.fault = self._read(self._path), ""
        except InvalidOverrides as error:
            self.fault = str(error)
        return self.current != before or self.fault != fault

    def _read(self, path: Path) -> Overrides:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOverrides(f"{path} cannot be read: {error}") from error
        return read_overrides(text, str(path))
