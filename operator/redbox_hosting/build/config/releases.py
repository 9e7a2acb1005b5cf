"""The releases of Slurm that can be hosted, and what differs between their configurations."""

from __future__ import annotations

from enum import StrEnum


class SlurmRelease(StrEnum):
    """A release of Slurm, as in the tag of its image."""

    R24_11 = "24.11"
    R26_05 = "26.05"

    @property
    def has_metrics(self) -> bool:
        """Whether slurmctld serves metrics and probes by HTTP; an older slurmd dies of the key."""
        return self is not SlurmRelease.R24_11
