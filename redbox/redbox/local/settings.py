"""Section `local` of the settings."""

from __future__ import annotations

from pathlib import Path

from redbox.core.yaml_document import Section


class LocalSettings(Section):
    """With workload_manager: local: where the jobs' records are, and how many jobs run at once."""

    directory: Path = Path("~/.local/state/redbox/local")
    """The records of the jobs."""
    slots: int = 0
    """Jobs at once; 0: as many as this host has processors."""
    shown_s: float = 300.0
    """How long the queue shows a job that has ended, as Slurm's does."""
    kept_s: float = 30 * 86_400.0
    """How long the history shows it."""
