"""The real fail2ban beside the real sshd: what is wrong, and how often it is tried, red-box is not banned.

Its mode `normal` counts logins of unknown accounts, `aggressive` each connection that ends before its login.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from redbox.agents.errors import AgentRefused, AgentUnavailable
from redbox.agents.pool import AgentPool
from redbox.agents.settings import PoolSettings
from redbox.agents.transports.failed_logins import FailedLogins
from redbox.agents.transports.ssh import LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import KeyDirectory
from redbox.core.domain import UnixUser
from tests.redbox.agents.fail2ban import Fail2Ban, fail2ban, syslog
from tests.redbox.agents.harness import until
from tests.redbox.agents.login_host import LoginHost
from tests.redbox.agents.sshd import LOOPBACK, Sshd, sshd

NO_PAUSE = PoolSettings(first_backoff_s=0.0, longest_backoff_s=0.0)
UNKNOWN = tuple(UnixUser(f"unknown{number}", 5000 + number) for number in range(6))


@dataclass(frozen=True)
class Guarded:
    """An sshd, and the fail2ban that reads its log."""

    sshd: Sshd
    jail: Fail2Ban
    keys: Path

    async def try_all_users(self, allowed: FailedLogins) -> None:
        """As a server that has just started does, asked three times for each."""
        node = LoginNode(LOOPBACK, self.sshd.known_hosts, self.sshd.port, failed_logins=allowed)
        async with AgentPool(SshTransport(node, KeyDirectory(self.keys)), NO_PAUSE) as pool:
            for user in UNKNOWN * 3:
                with pytest.raises((AgentRefused, AgentUnavailable)):
                    await pool.agent(user)


@pytest.fixture
async def guarded(
    request: pytest.FixtureRequest, login_host: LoginHost, tmp_path: Path
) -> AsyncIterator[Guarded]:
    (tmp_path / "keys").mkdir()
    for user in UNKNOWN:
        (tmp_path / "keys" / user.name).touch(mode=0o600)
        key = asyncssh.generate_private_key("ssh-ed25519").export_private_key()
        (tmp_path / "keys" / user.name).write_bytes(key)
    log, sent_to = tmp_path / "auth.log", tmp_path / "syslog"
    log.touch()
    with syslog(sent_to, log), sshd(login_host, tmp_path / "a", syslog=sent_to) as node:
        await until(lambda: "Connection closed by" in log.read_text())  # of the probe whether sshd is up
        with fail2ban(log, tmp_path / "fail2ban", request.param) as jail:
            yield Guarded(node, jail, tmp_path / "keys")


@pytest.mark.parametrize(
    ("guarded", "host_key"), [("normal", "known"), ("aggressive", "another")], indirect=["guarded"]
)
async def test_servers_that_start_again_and_again_are_not_banned(
    guarded: Guarded, tmp_path: Path, host_key: str
) -> None:
    """Each of them, and each `redbox check`, counts what failed before it was started."""
    if host_key == "another":
        other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
        guarded.sshd.known_hosts.write_text(f"[{LOOPBACK}]:{guarded.sshd.port} {other}")
    for _ in range(3):
        await guarded.try_all_users(FailedLogins(file=tmp_path / "failed-logins"))
    assert guarded.jail.banned() == set()
    await guarded.try_all_users(FailedLogins(most=100))
    assert guarded.jail.banned() == {LOOPBACK}, "the jail bans who tries more"
