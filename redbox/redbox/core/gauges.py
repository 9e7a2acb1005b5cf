"""Metrics of a workload manager: families of gauges, as the interface between `slurm` and `http` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class MetricFamily(StrEnum):
    """The last part of a path below /metrics/slurm."""

    JOBS = "jobs"
    NODES = "nodes"
    PARTITIONS = "partitions"
    SCHEDULER = "scheduler"
    USERS_ACCOUNTS = "users-accounts"


@dataclass(frozen=True, slots=True)
class NamedGauge:
    """A number, or one for each value of a label."""

    name: str
    help: str
    samples: Mapping[str, float]  # by the label's value; without a label by ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class FamilyOfGauges:
    """The gauges of one family."""

    gauges: tuple[NamedGauge, ...]
    left_out: Mapping[str, int]  # by label: values beyond the bound


class MetricSource(Protocol):
    """A workload manager that has metrics."""

    serves_users_accounts: bool

    async def family(self, name: MetricFamily) -> FamilyOfGauges:
        """The newest numbers; WorkloadManagerError where there are none, with the reason."""
        ...


def number(name: str, help_text: str, value: float) -> NamedGauge:
    return NamedGauge(name, help_text, {"": value})


def first_by(names: Iterable[str], most: int, weight: Callable[[str], float]) -> tuple[list[str], int]:
    """At most so many names, the heaviest first, and how many are left out."""
    ordered = sorted(names, key=lambda name: (-weight(name), name))
    return sorted(ordered[:most]), max(0, len(ordered) - most)
