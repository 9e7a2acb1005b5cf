"""Where the bed keeps things: its state (removed by `down`) and its cache (which outlives `down`)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent.parent.parent


@dataclass(frozen=True)
class Places:
    """The two folders, and the name that this bed's cgroups carry."""

    state: Path
    cache: Path

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Places:
        """State in <checkout>/.bed (or BED_DIR), cache in REDBOX_CACHE (or ~/.cache/red-box)."""
        home = Path(environment.get("HOME") or "/root")
        xdg = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
        return cls(
            state=Path(environment.get("BED_DIR") or CHECKOUT / ".bed").absolute(),
            cache=Path(environment.get("REDBOX_CACHE") or xdg / "red-box").absolute(),
        )

    @property
    def name(self) -> str:
        """Tells this bed's cgroups from those of a bed of another checkout."""
        return "redbox-bed-" + hashlib.sha256(str(self.state).encode()).hexdigest()[:8]

    @property
    def plan(self) -> Path:
        return self.state / "plan.json"

    @property
    def ssh(self) -> Path:
        return self.state / "ssh"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    def host(self, name: str) -> Path:
        """Everything of one host: its pid, its boot log, and the folders that only it sees."""
        return self.state / "hosts" / name

    def tree(self, name: str) -> Path:
        """The overlay that all hosts of one cluster have as their root."""
        return self.state / "trees" / name

    def home(self, cluster: str) -> Path:
        """The folder that all hosts of one cluster have as /home."""
        return self.state / "home" / cluster
