"""What an administrator says of partitions instead of Slurm: limits, and features that Slurm does not know.

The fields are those of the Sylabs operator's configuration: an old file goes on when it is put under its
cluster's name. What is not set is Slurm's; `auto_…: true` says so explicitly, and wins over a number.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from redbox_kube.node_labels import Limit

SECONDS = {"h": 3600, "m": 60, "s": 1}
DURATION = re.compile(r"(\d+[hms])+")


class InvalidOverrides(Exception):
    """The file of overrides cannot be used: which place in it, and why."""


def _seconds(given: object) -> object:
    if isinstance(given, str) and DURATION.fullmatch(given):
        return sum(int(part[:-1]) * SECONDS[part[-1]] for part in re.findall(r"\d+[hms]", given))
    return given


Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[int, Field(ge=1, le=2**53), BeforeValidator(_seconds)]


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AdditionalFeature(_Written):
    """Something that the partition has, and how many of it."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    version: Annotated[str, Field(max_length=256, coerce_numbers_to_str=True)] = ""
    quantity: Count = 0


class PartitionOverride(_Written):
    """One partition, where it is not as Slurm says."""

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
        """Those that are fixed here."""
        fixed = {
            Limit.NODES: (self.nodes, self.auto_nodes),
            Limit.CPUS_PER_NODE: (self.cpu_per_node, self.auto_cpu_per_node),
            Limit.MEM_MB_PER_NODE: (self.mem_per_node, self.auto_mem_per_node),
            Limit.GPUS_PER_NODE: (self.gpu_per_node, self.auto_gpu_per_node),
            Limit.TIME_S: (self.wall_time, self.auto_wall_time),
        }
        return {limit: value for limit, (value, auto) in fixed.items() if value is not None and not auto}


NO_OVERRIDE = PartitionOverride()


class Overrides(_Written):
    """By cluster, then by partition, both by their true names."""

    clusters: dict[str, dict[str, PartitionOverride]] = {}

    def of(self, cluster: str, partition: str) -> PartitionOverride:
        return self.clusters.get(cluster, {}).get(partition, NO_OVERRIDE)


def read_overrides(text: str, where: str) -> Overrides:
    """Parse and check; BadOverrides says where in the file it went wrong."""
    try:
        given: Any = yaml.safe_load(text)
        return Overrides.model_validate({} if given is None else given)
    except yaml.YAMLError as error:
        raise InvalidOverrides(f"{where} is no YAML: {error}") from error
    except ValidationError as error:
        raise InvalidOverrides(f"{where}: {'; '.join(_problems(error.errors()))}") from error


def _problems(errors: list[Any]) -> list[str]:
    return [f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}" for one in errors]


class OverridesFile:
    """The file as it is mounted: read again when it changes; a bad change leaves what was good."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._text = ""
        self.now = Overrides()
        self.fault = ""
        """Why the newest file is not used."""

    def load(self) -> None:
        """Read it for the first time: a file that cannot be used is refused."""
        if self._path is not None:
            self.now = self._read(self._path)

    def reload(self) -> bool:
        """Whether something is different now, be it a fault."""
        if self._path is None:
            return False
        before, fault = self.now, self.fault
        try:
            self.now, self.fault = self._read(self._path), ""
        except InvalidOverrides as error:
            self.fault = str(error)
        return self.now != before or self.fault != fault

    def _read(self, path: Path) -> Overrides:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOverrides(f"{path} cannot be read: {error}") from error
        if text == self._text and not self.fault:
            return self.now
        overrides = read_overrides(text, str(path))
        self._text = text
        return overrides
