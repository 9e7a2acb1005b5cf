"""The bed's login host for tests of red-box: agents of its users, without sudo or ssh in between."""

from __future__ import annotations

import shutil

from redbox.agents.protocol.connection import AgentProcess
from redbox.agents.transports.base import check_user, is_agent_refusal
from redbox.agents.transports.bootstrap import ARGV, bootstrap_preamble
from redbox.agents.transports.process import ChildProcess
from redbox.core.domain import UnixUser
from redbox_bed.hosts.host import Host

ALICE = UnixUser("alice", 2001)
BOB = UnixUser("bob", 2002)
CAROL = UnixUser("carol", 2003)


class HostTransport:
    """Starts agents in a host of the bed, as its users."""

    name = "bed"

    def __init__(self, host: Host) -> None:
        self._host = host

    async def start(self, user: UnixUser) -> AgentProcess:
        check_user(user)
        program, *rest = self._host.command(ARGV, user.name)
        return await ChildProcess.start(
            [shutil.which(program) or program, *rest], preamble=bootstrap_preamble()
        )

    def credentials_expire_at(self) -> float | None:
        return None

    def is_refusal(self, status: int | None, stderr: str) -> bool:  # noqa: ARG002 (only sudo's is read)
        return is_agent_refusal(status)
