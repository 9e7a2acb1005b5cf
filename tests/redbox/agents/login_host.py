"""A login host in a mount namespace: own accounts, the real sudo, and the real sshd on loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from redbox.agents.install_texts import render_agent_conf, render_sshd, render_sudoers
from redbox.agents.program_source import agent_source
from redbox.agents.transports.sudo import SudoTransport
from redbox.core.domain import UnixUser
from tests.ports import free_port

SERVER = UnixUser("redbox", 4001)
ALICE = UnixUser("alice", 4101)  # sh
BOB = UnixUser("bob", 4102)  # csh, whose .cshrc prints 60 KiB
CAROL = UnixUser("carol", 4103)  # fish
DAVE = UnixUser("dave", 4104)  # csh, whose .cshrc prints 200 KiB
ERIN = UnixUser("erin", 4106)  # bash, whose .bashrc prints
LEGACY = UnixUser("legacy", 500)  # of the group, but below min_uid
MALLORY = UnixUser("mallory", 4105)  # not of the group
SHELLS = {
    ALICE: "/bin/sh",
    BOB: "/bin/tcsh",
    CAROL: "/usr/bin/fish",
    DAVE: "/bin/tcsh",
    ERIN: "/bin/bash",
    LEGACY: "/bin/sh",
    MALLORY: "/bin/sh",
}
MEMBERS = (ALICE, BOB, CAROL, DAVE, ERIN, LEGACY)

STARTS_WITHIN_S = 60

SCRIPT = """\
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
for top in etc usr/libexec; do
    mkdir -p "/mnt/$top/upper" "/mnt/$top/work"
    mount -t overlay overlay -o "lowerdir=/$top,upperdir=/mnt/$top/upper,workdir=/mnt/$top/work" "/$top"
done
mount -t tmpfs tmpfs /home
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd /usr/libexec/redbox /etc/redbox /etc/ssh/keys
cp -r "$1"/files/. /
chown root:root / /usr /usr/libexec /usr/libexec/redbox /usr/libexec/redbox/agent
chown root:root /etc /etc/redbox /etc/redbox/agent.conf
chmod 755 /usr/libexec/redbox /usr/libexec/redbox/agent /etc/redbox /etc/ssh/keys
chmod 644 /etc/redbox/agent.conf /etc/ssh/keys/*
chmod 600 /etc/ssh/test_host_key
chmod 440 /etc/sudoers.d/redbox
while IFS=: read -r name _ uid _; do
    [ ! -d "/home/$name" ] || chown -R "$uid:$uid" "/home/$name"
done </etc/passwd
echo ready
exec "$2" -c 'import sys; sys.stdin.read()'
"""

SSHD_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey /etc/ssh/test_host_key
AuthorizedKeysFile /etc/ssh/keys/%u
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""


@dataclass(frozen=True)
class LoginHost:
    """A running one."""

    folder: Path
    holder: int  # the process whose namespace it is
    port: int

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    @property
    def ca_key(self) -> asyncssh.SSHKey:
        return asyncssh.read_private_key(self.folder / "ca")

    def enter(self, *argv: str) -> tuple[str, ...]:
        return ("/usr/bin/nsenter", f"--mount=/proc/{self.holder}/ns/mnt", "--", *argv)

    @classmethod
    @contextmanager
    def running(cls, folder: Path) -> Iterator[LoginHost]:
        port = free_port()
        write_files(folder, port)
        argv = ("/usr/bin/unshare", "--mount", "/bin/sh", "-c", SCRIPT, "sh", str(folder), sys.executable)
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout
            assert holder.stdout.readline() == b"ready\n"
            host = cls(folder, holder.pid, port)
            sshd = ("/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/test_sshd_config")
            with (
                (folder / "sshd.log").open("wb") as log,
                subprocess.Popen(host.enter(*sshd), stderr=log) as daemon,
            ):
                try:
                    wait_for_port(port)
                    yield host
                finally:
                    daemon.terminate()
                    holder.terminate()


class SudoOnLoginHost(SudoTransport):
    """The sudo transport as the account redbox uses it there."""

    def __init__(self, host: LoginHost) -> None:
        super().__init__()
        self._host = host

    def argv(self, user: UnixUser) -> tuple[str, ...]:
        drop = ("/usr/bin/setpriv", f"--reuid={SERVER.uid}", f"--regid={SERVER.uid}", "--clear-groups", "--")
        return self._host.enter(*drop, *super().argv(user))


def wait_for_port(port: int, address: str = "127.0.0.1") -> None:
    give_up_at = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < give_up_at:
        with socket.socket() as client:
            if client.connect_ex((address, port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port} of {address}")


def wait_until_silent(port: int, address: str) -> None:
    """The processes of a machine that is off end after the one that holds it."""
    give_up_at = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < give_up_at:
        with socket.socket() as client:
            if client.connect_ex((address, port)) != 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"port {port} of {address} is still listened on")


def write_files(folder: Path, port: int) -> None:
    keys = folder / "keys"
    keys.mkdir()
    host_key, ca = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
    (folder / "ca").write_bytes(ca.export_private_key())
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key.export_public_key().decode()}")
    files = {
        "etc/passwd": Path("/etc/passwd").read_text() + passwd_lines(),
        "etc/group": Path("/etc/group").read_text() + group_lines(),
        "etc/shadow": Path("/etc/shadow").read_text()
        + "".join(f"{u.name}:*:19000::::::\n" for u in (*SHELLS, SERVER)),
        "etc/sudoers.d/redbox": render_sudoers(),
        "etc/redbox/agent.conf": render_agent_conf(min_uid=1000, path="/usr/bin:/bin"),
        "etc/redbox/ssh-ca.pub": ca.export_public_key().decode(),
        "etc/ssh/test_host_key": host_key.export_private_key().decode(),
        "etc/ssh/test_sshd_config": SSHD_CONFIG.format(port=port) + render_sshd(),
        "usr/libexec/redbox/agent": agent_source().decode(),
        "home/bob/.cshrc": banner(60 * 1024),
        "home/dave/.cshrc": banner(200 * 1024),
        "home/erin/.bashrc": "echo 'Quota: 93 % of 10 GB'; echo 'module: command not found' >&2\n",
    }
    for user in SHELLS:
        key = asyncssh.generate_private_key("ssh-ed25519")
        (keys / user.name).touch(mode=0o600)
        (keys / user.name).write_bytes(key.export_private_key())
        files[f"etc/ssh/keys/{user.name}"] = key.export_public_key().decode()
        (folder / "files/home" / user.name).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "files" / name).write_text(content)


def passwd_lines() -> str:
    lines = [
        f"{user.name}:x:{user.uid}:{user.uid}::/home/{user.name}:{shell}\n" for user, shell in SHELLS.items()
    ]
    return "".join(lines) + f"{SERVER.name}:x:{SERVER.uid}:{SERVER.uid}::/:/usr/sbin/nologin\n"


def group_lines() -> str:
    own = "".join(f"{user.name}:x:{user.uid}:\n" for user in (*SHELLS, SERVER))
    return own + f"redbox-users:x:4000:{','.join(user.name for user in MEMBERS)}\n"


def banner(size: int) -> str:
    return f"echo {'=' * 1023}\n" * (size // 1024)
