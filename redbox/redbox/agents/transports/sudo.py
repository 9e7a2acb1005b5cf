"""`sudo`: the server's account may run one root-owned file, without arguments, as a member of one group.

`redbox.agents.install_texts` has the file, the sudoers line and agent.conf that an administrator installs.
"""

from __future__ import annotations

import re
import signal

from redbox.agents.protocol.connection import AgentProcess
from redbox.agents.transports.base import check_user, is_agent_refusal
from redbox.agents.transports.process import ChildProcess
from redbox.core.domain import UnixUser

SUDO = "/usr/bin/sudo"
AGENT_PATH = "/usr/libexec/redbox/agent"
LOGIN_UMASK = 0o022  # PAM's default at a login
SUDO_KILLS = signal.SIGALRM
"""sudo's own timer: it kills its command, and ends. Killed itself, it would leave the command behind."""
# sudo exits with 1 for every reason; these are final, a failed fork is not. Nor is an unknown user:
# red-box has just looked that user up on this host, so the directory of users is away.
REFUSALS = re.compile(
    r"not allowed|may not run|not in the sudoers|password is required|a terminal is required"
    r"|command not found|must be owned by|account validation failure"
)


class SudoTransport:
    """Starts agents with `sudo -n -u USER -- /usr/libexec/redbox/agent`."""

    name = "sudo"

    async def start(self, user: UnixUser) -> AgentProcess:
        check_user(user)
        return await ChildProcess.start(self.argv(user), umask=LOGIN_UMASK, kill_signal=SUDO_KILLS)

    def argv(self, user: UnixUser) -> tuple[str, ...]:
        return (SUDO, "-n", "-u", user.name, "--", AGENT_PATH)

    def credentials_expire_at(self) -> float | None:
        return None

    def is_refusal(self, status: int | None, stderr: str) -> bool:
        return is_agent_refusal(status) or bool(REFUSALS.search(stderr))
