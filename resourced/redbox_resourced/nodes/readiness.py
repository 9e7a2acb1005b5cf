"""Whether virtual nodes are served by this process: their condition Ready says that, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

BEGINS_WITHIN_S = 20.0


class NodeServer(Protocol):
    """What serves them."""

    @property
    def trouble(self) -> str:
        """Why it does not; empty where it does."""

    @property
    def note(self) -> str:
        """What an administrator has yet to do."""


@dataclass(frozen=True)
class ServingStatus:
    """`trouble` is empty where nodes are served."""

    trouble: str = ""
    note: str = ""


class NodeReadiness:
    """Asks it, with patience: what has just begun is not said to be broken."""

    def __init__(self, serves: NodeServer) -> None:
        self._serves = serves
        self._began_at: float | None = None

    def now(self) -> ServingStatus | None:
        """None: it is about to begin, and what nodes say of it stays."""
        now = asyncio.get_running_loop().time()
        self._began_at = self._began_at or now
        served = ServingStatus(self._serves.trouble, self._serves.note)
        return None if served.trouble and now - self._began_at < BEGINS_WITHIN_S else served
