"""The condition Ready of virtual nodes: whether this process serves them, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

STARTUP_S = 20.0


class NodeServer(Protocol):
    """The component that serves virtual nodes."""

    @property
    def problem(self) -> str:
        """Why nodes are not served; empty where they are."""

    @property
    def note(self) -> str:
        """The action that an administrator has yet to take, if any."""


@dataclass(frozen=True)
class ServingStatus:
    """`problem` is empty where nodes are served."""

    problem: str = ""
    note: str = ""


class NodeReadiness:
    """Reports the server's status; a problem counts only after the time that a start may take."""

    def __init__(self, server: NodeServer) -> None:
        self._server = server
        self._started_at: float | None = None

    def status(self) -> ServingStatus | None:
        """None during startup: the nodes' conditions stay as they are."""
        now = asyncio.get_running_loop().time()
        self._started_at = self._started_at or now
        status = ServingStatus(self._server.problem, self._server.note)
        return None if status.problem and now - self._started_at < STARTUP_S else status
