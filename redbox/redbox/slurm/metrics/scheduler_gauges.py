"""The numbers of slurmctld's scheduler, as sdiag has them."""

from __future__ import annotations

from collections.abc import Mapping

from redbox.core.gauges import FamilyOfGauges, number
from redbox.slurm.commands.sdiag import STATISTICS


def scheduler_gauges(numbers: Mapping[str, float]) -> FamilyOfGauges:
    """`/metrics/scheduler`; a number that this release's sdiag does not print is left out."""
    gauges = [
        number(f"slurm_{name}", text, numbers[name])
        for name, (_, text) in STATISTICS.items()
        if name in numbers
    ]
    return FamilyOfGauges(tuple(gauges), {})
