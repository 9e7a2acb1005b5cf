"""What every part of the bed says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PartStatus:
    """How one part of the bed is, and on which host. `detail` is for people."""

    name: str
    where: str
    well: bool
    detail: str
