"""`self`: red-box runs as the user whose jobs it submits; a personal install without an administrator."""

from __future__ import annotations

import os

from redbox.agents.errors import AgentRefused
from redbox.agents.protocol.connection import AgentProcess
from redbox.agents.transports.base import check_user, is_agent_refusal
from redbox.agents.transports.bootstrap import ARGV, bootstrap_preamble
from redbox.agents.transports.process import ChildProcess
from redbox.core.domain import UnixUser


class SelfTransport:
    """Starts agents for the server's own user only."""

    name = "self"

    async def start(self, user: UnixUser) -> AgentProcess:
        check_user(user)
        if user.uid != os.geteuid():
            raise AgentRefused(
                f"this red-box runs as uid {os.geteuid()} and cannot act for another user, {user.name}"
            )
        return await ChildProcess.start(ARGV, preamble=bootstrap_preamble())

    def credentials_expire_at(self) -> float | None:
        return None

    def is_refusal(self, status: int | None, stderr: str) -> bool:  # noqa: ARG002 # only sudo's is read
        return is_agent_refusal(status)
