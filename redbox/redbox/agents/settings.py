"""Bounds and times of the pool of agents, with defaults that suit a login node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How many agents there may be, and how long each thing about them may take."""

    most_agents: int = 128
    most_per_user: int = 2  # commands and files; ended ones that are not reaped count too
    start_s: float = 15.0
    idle_s: float = 300.0
    sweep_s: float = 15.0
    leave_s: float = 5.0  # how long the server's own end waits for them
    first_backoff_s: float = 1.0  # after a start that failed
    longest_backoff_s: float = 30.0
