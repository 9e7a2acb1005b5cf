"""More sshds on the login host, each with its own configuration, host key and log."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from redbox.agents.errors import AgentError, AgentRefused, AgentUnavailable
from redbox.agents.pool import AgentPool
from redbox.agents.settings import PoolSettings
from redbox.agents.transports.base import Transport
from redbox.agents.transports.ssh import LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import KeyDirectory
from redbox.core.domain import UnixUser
from tests.redbox.agents.login_host import ALICE, LoginHost, free_port, wait_for_port

CONFIG = """\
ListenAddress {address}
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile /etc/ssh/keys/%u
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel VERBOSE
{more}
"""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Sshd:
    """A running one, and what a client of it needs."""

    host: LoginHost
    folder: Path
    port: int

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def node(self, name: str = LOOPBACK, **more: object) -> LoginNode:
        return LoginNode(name, self.known_hosts, self.port, **more)  # type: ignore[arg-type] # as a test says

    def transport(self, name: str = LOOPBACK, keys: Path | None = None, **more: object) -> SshTransport:
        return SshTransport(self.node(name, **more), KeyDirectory(keys or self.host.keys))


@contextmanager
def sshd(
    host: LoginHost,
    folder: Path,
    more: str = "",
    *,
    address: str = LOOPBACK,
    port: int | None = None,
    key_type: str = "ssh-ed25519",
) -> Iterator[Sshd]:
    """Run one until the block ends; `more` are lines of its configuration, which take precedence."""
    port = port or free_port()
    folder.mkdir(exist_ok=True)
    key = asyncssh.generate_private_key(key_type)
    (folder / "host_key").touch(mode=0o600)
    (folder / "host_key").write_bytes(key.export_private_key())
    names = ",".join(f"[{name}]:{port}" for name in (address, "login.example"))
    (folder / "known_hosts").write_text(f"{names} {key.export_public_key().decode()}")
    own = CONFIG.format(address=address, port=port, folder=folder, more="")
    (folder / "config").write_text(f"{more}\n{own}" if "Match" not in more else f"{own}\n{more}")
    argv = ["/usr/sbin/sshd", "-D", "-E", str(folder / "log"), "-f", str(folder / "config")]
    with subprocess.Popen(host.enter(*argv)) as daemon:
        try:
            wait_for_port(port, address)
            yield Sshd(host, folder, port)
        finally:
            daemon.terminate()


async def failure(
    transport: Transport, user: UnixUser = ALICE, settings: PoolSettings | None = None
) -> AgentError:
    async with AgentPool(transport, settings) as pool:
        with pytest.raises((AgentRefused, AgentUnavailable)) as raised:
            await pool.agent(user)
    return raised.value


async def whoami(transport: Transport, user: UnixUser = ALICE) -> str:
    async with AgentPool(transport) as pool:
        ran = await (await pool.agent(user)).run(["id", "-un"], deadline=20)
    return ran.stdout.decode().strip()


def key_of_alice(folder: Path, key: asyncssh.SSHKey) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "alice"
    path.touch(mode=0o600)
    path.write_bytes(key.export_private_key())
    return folder
