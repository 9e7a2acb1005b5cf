"""The interface of transports, and the checks common to all."""

from __future__ import annotations

import re
from typing import Protocol

from redbox.agents.errors import AgentRefused
from redbox.agents.program.guard import REFUSED
from redbox.agents.protocol.connection import AgentProcess
from redbox.core.domain import UnixUser

# No leading '-' (an option) and no '#' (sudo's prefix of a uid); directory services use '@' and '.'.
USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}\Z")


class Transport(Protocol):
    """Starts agents."""

    name: str

    async def start(self, user: UnixUser) -> AgentProcess:
        """Start an agent; the caller sets the deadline. Raises AgentRefused, AgentUnavailable or OSError."""

    def credentials_expire_at(self) -> float | None:
        """When those with which it logs in end, in seconds since the epoch; None: it has none that end."""

    def is_refusal(self, status: int | None, stderr: str) -> bool:
        """Return whether this end before the hello is final, so that a retry cannot succeed."""


def check_user(user: UnixUser) -> None:
    """Refuse names that sudo or ssh would interpret otherwise, and root under any name."""
    if not USER_NAME.match(user.name):
        raise AgentRefused(f"agents are not started for the user name {user.name!r}")
    if user.uid <= 0 or user.name == "root":
        raise AgentRefused("agents are not started for root")


def is_agent_refusal(status: int | None) -> bool:
    return status == REFUSED
