"""Section `local` of the settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Where the jobs' records are, and how many jobs run at once."""

    directory: Path = Path("~/.local/state/redbox/local")
    slots: int = 0  # 0: as many as this host has processors
    shown_s: float = 300.0  # how long the queue shows a job that has ended, as Slurm does
    kept_s: float = 30 * 86_400.0  # and how long the history does
