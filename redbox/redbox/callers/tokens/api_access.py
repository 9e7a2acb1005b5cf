"""How a Kubernetes API server is reached: part of the settings, and needs no client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """The access to an API server."""

    ca_file: Path | None
    token_file: Path | None
    deadline_s: float
