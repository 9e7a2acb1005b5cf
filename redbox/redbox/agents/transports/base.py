"""What the pool asks of a transport, and what all transports hold to."""

from __future__ import annotations

import re
from typing import Protocol

from redbox.agents.errors import AgentRefused
from redbox.agents.program.guard import REFUSED
from redbox.agents.protocol.connection import AgentProcess
from redbox.core.domain import UnixUser

# No leading '-' (an option) and no '#' (sudo's word for a uid); directory services have '@' and '.'.
USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}\Z")


class Transport(Protocol):
    """Starts agents."""

    name: str

    async def start(self, user: UnixUser) -> AgentProcess:
        """Start an agent; the caller sets the deadline. Raises AgentRefused, AgentUnavailable or OSError."""
        ...

    def is_refusal(self, status: int | None, words: str) -> bool:
        """Whether an agent that ended like this before its hello will never run for this user."""
        ...


def check_user(user: UnixUser) -> None:
    """Refuse names that would mean something else to a program, and root under any name."""
    if not USER_NAME.match(user.name):
        raise AgentRefused(f"{user.name!r} is no user name that an agent is started for")
    if user.uid <= 0 or user.name == "root":
        raise AgentRefused("no agent is ever started for root")


def is_agent_refusal(status: int | None) -> bool:
    return status == REFUSED
