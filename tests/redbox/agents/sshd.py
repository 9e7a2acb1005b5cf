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
from tests.ports import free_port
from tests.redbox.agents.login_host import ALICE, LoginHost, wait_for_port, wait_until_silent

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
DEVICES = "null zero full random urandom tty"
WITH_SYSLOG = f"""\
set -eu
mount --make-rprivate /
mkdir -p /run/dev
mount -t tmpfs -o mode=755 tmpfs /run/dev
for name in log {DEVICES}; do touch "/run/dev/$name"; done
for name in {DEVICES}; do mount --bind "/dev/$name" "/run/dev/$name"; done
mount --bind "$1" /run/dev/log
ln -s /proc/self/fd /run/dev/fd
mount --move /run/dev /dev
shift
exec "$@"
"""
"""With a /dev of its own, where $1 is the syslog's socket."""
OTHER_MACHINE = """\
set -eu
mount --make-rprivate /
mount -t proc proc /proc
cat /proc/sys/kernel/random/uuid >"$1/boot_id"
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id
mount -t tmpfs tmpfs /run
mkdir /run/sshd
[ "$2" = shared ] || mount -t tmpfs -o mode=1777 tmpfs /home
for home in $(cut -d: -f1,3,6 /etc/passwd | grep ':/home/'); do
    user=${home%%:*} path=${home##*:}
    [ -d "$path" ] || { mkdir "$path"; chown "$user" "$path"; }
done
shift 2
exec "$@"
"""
"""With own processes, boot id and runtime directories, and own homes unless $2 is `shared`."""


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
    machine: str = "",
    syslog: Path | None = None,
) -> Iterator[Sshd]:
    """Run one until the block ends; `more` are lines of its configuration, which take precedence.

    With `machine` it is another one, with `shared` or `own` homes, all of whose processes end with it. With
    `syslog`, a socket, it logs there and not to its own file.
    """
    port = port or free_port()
    folder.mkdir(exist_ok=True)
    if not (folder / "host_key").exists():  # one that starts again has the same
        (folder / "host_key").touch(mode=0o600)
        (folder / "host_key").write_bytes(asyncssh.generate_private_key(key_type).export_private_key())
    key = asyncssh.read_private_key(folder / "host_key")
    names = ",".join(f"[{name}]:{port}" for name in (address, "login.example"))
    (folder / "known_hosts").write_text(f"{names} {key.export_public_key().decode()}")
    own = CONFIG.format(address=address, port=port, folder=folder, more="")
    (folder / "config").write_text(f"{more}\n{own}" if "Match" not in more else f"{own}\n{more}")
    argv = ["/usr/sbin/sshd", "-D", "-E", str(folder / "log"), "-f", str(folder / "config")]
    if syslog is not None:
        argv = ["/usr/sbin/sshd", "-D", "-f", str(folder / "config")]
        argv = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", WITH_SYSLOG, "sh", str(syslog), *argv]
    if machine:
        apart = ["/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child"]
        argv = [*apart, "/bin/sh", "-c", OTHER_MACHINE, "sh", str(folder), machine, *argv]
    with subprocess.Popen(host.enter(*argv)) as daemon:
        try:
            wait_for_port(port, address)
            yield Sshd(host, folder, port)
        finally:
            (daemon.kill if machine else daemon.terminate)()
    wait_until_silent(port, address)


async def failure(
    transport: Transport, user: UnixUser = ALICE, settings: PoolSettings | None = None
) -> AgentError:
    async with AgentPool(transport, settings) as pool:
        with pytest.raises((AgentRefused, AgentUnavailable)) as raised:
            await pool.agent(user)
    return raised.value


async def whoami(transport: Transport, user: UnixUser = ALICE) -> str:
    async with AgentPool(transport) as pool:
        ran = await (await pool.agent(user)).run(["id", "-un"], deadline=60)
    return ran.stdout.decode().strip()


def key_of_alice(folder: Path, key: asyncssh.SSHKey) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "alice"
    path.touch(mode=0o600)
    path.write_bytes(key.export_private_key())
    return folder
