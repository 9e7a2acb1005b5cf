"""A login node that is as it should be, for tests to break one thing of."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from redbox.agents.install_texts import render_agent_conf, render_sudoers
from redbox.callers.errors import ApiServerUnavailable
from redbox.callers.tokens.api_access import ApiAccess
from redbox.callers.unix_accounts import UnixAccount
from redbox.core.domain import UnixUser
from redbox.server.certificates import issue_server, make_authority
from redbox.setup.checks.machine import FilePermissions, Machine, ProcessOutput
from redbox.setup.checks.slurm import TOOLS
from redbox.setup.install.example_settings import render_settings
from redbox.slurm.commands import sacct
from tests.redbox.callers.factories import ISSUER, jwks, rsa_key

NOW = dt.datetime(2026, 9, 21, 12, tzinfo=dt.UTC)
AUDIENCE = "redbox.dev/hpc1/k3v9x2qd7m"
REDBOX, MEMBERS = 990, 500

SLURM_CONFIG = """\
Configuration data as of 2026-09-21T12:00:00
AccountingStorageType   = accounting_storage/slurmdbd
AccountingStoreFlags    = job_comment
ClusterName             = hpc1
EnforcePartLimits       = ALL
JobRequeue              = 1
MinJobAge               = 300 sec
PrivateData             = none
SLURM_VERSION           = 24.11.5
"""
SACCT_FIELDS = " ".join((*sacct.FIELDS, *sacct.TEXTS))
SUDO_LIST = """\
Matching Defaults entries for redbox on login:
    env_reset, mail_badpass,
    secure_path=/usr/local/sbin\\:/usr/local/bin\\:/usr/sbin\\:/usr/bin\\:/sbin\\:/bin,
    use_pty

Runas and Command-specific defaults for redbox:
    Defaults!/usr/libexec/redbox/agent !log_input, !log_output, !requiretty,
    !use_pty, env_reset

User redbox may run the following commands on login:
    (%redbox-users) NOPASSWD: /usr/libexec/redbox/agent ""
"""


PROCESSES = """\
      1       0 9000 root     /sbin/init
    700       1 9000 redbox   /usr/bin/python3 /usr/local/bin/redbox serve
    701     700 9000 root     /usr/bin/sudo -n -u alice -- /usr/libexec/redbox/agent
    702     701 9000 alice    /usr/bin/python3 -I -S /usr/libexec/redbox/agent
    801       1   20 root     /usr/bin/sudo -n -u bob -- /usr/libexec/redbox/agent
    900       1 9000 bob      vi /usr/libexec/redbox/agent.conf
    901       2 9000 root     [kworker]
"""


@dataclass
class File:
    content: bytes = b""
    mode: int = 0o644
    uid: int = 0
    is_directory: bool = False
    of_own_group: bool = False
    is_read_only: bool = False


def settings_text(**more: object) -> str:
    """The settings that this host has."""
    cluster = {
        "name": "prod",
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "jwks_file": "/etc/redbox/prod.jwks.json",
    }
    rules = [{"cluster": "prod", "namespaces": ["physics"], "user": "alice"}]
    return render_settings(
        {"name": "hpc1", "callers": {"clusters": [cluster]}, "mapping": {"rules": rules}, **more}
    )


def good_files() -> dict[str, File]:
    authority = make_authority("hpc1", NOW)
    server = issue_server(authority, ["login.example"], [], NOW)
    directories = ("/", "/etc", "/etc/redbox", "/etc/redbox/tls", "/usr", "/var", "/var/lib")
    return {
        **{path: File(mode=0o755, is_directory=True) for path in directories},
        "/etc/redbox/redbox.yaml": File(settings_text().encode()),
        "/etc/redbox/prod.jwks.json": File(jwks(a=rsa_key())),
        "/etc/redbox/agent.conf": File(render_agent_conf(min_uid=1000, path="/usr/bin").encode()),
        "/etc/redbox/tls/server.crt": File(server.certificate),
        "/etc/redbox/tls/server.key": File(server.key, 0o600, REDBOX),
        "/etc/redbox/tls/ca.key": File(authority.key, 0o600),
        "/etc/sudoers.d/redbox": File(render_sudoers().encode(), 0o440),
        "/var/lib/redbox": File(mode=0o700, uid=REDBOX, is_directory=True),
        "/var/lib/redbox/mark.secret": File(b"ab" * 32 + b"\n", 0o600, REDBOX),
        "/proc/self/mountinfo": File(b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"),
    }


def good_commands() -> dict[str, ProcessOutput]:
    return {
        "/usr/sbin/visudo -c": ProcessOutput(0, "/etc/sudoers: parsed OK\n"),
        "/usr/bin/sudo -n -l -U redbox": ProcessOutput(0, SUDO_LIST),
        "/usr/bin/ps -e": ProcessOutput(0, PROCESSES),
        "/usr/bin/scontrol show config": ProcessOutput(0, SLURM_CONFIG),
        "/usr/bin/scontrol show federation": ProcessOutput(0, ""),
        "/usr/bin/sacct --helpformat": ProcessOutput(0, SACCT_FIELDS),
        "/usr/bin/sacct --allocations": ProcessOutput(0, ""),
        "/usr/bin/sacctmgr --readonly show configuration": ProcessOutput(0, "PrivateData = none\n"),
    }


def good_accounts() -> dict[str, UnixAccount]:
    return {
        "redbox": UnixAccount("redbox", REDBOX, frozenset({REDBOX})),
        "alice": UnixAccount("alice", 2001, frozenset({2001, MEMBERS})),
        "bob": UnixAccount("bob", 2002, frozenset({2002})),
        "daemon": UnixAccount("daemon", 2, frozenset({2, MEMBERS})),
    }


@dataclass
class LoginNode(Machine):
    """Stands in for a real host; all of it can be changed."""

    uid: int = 0
    files: dict[str, File] = field(default_factory=good_files)
    links: dict[str, str] = field(default_factory=dict)
    commands: dict[str, ProcessOutput] = field(default_factory=good_commands)
    accounts: dict[str, UnixAccount] = field(default_factory=good_accounts)
    groups: dict[str, int] = field(default_factory=lambda: {"redbox-users": MEMBERS, "docker": 42})
    tools: set[str] = field(default_factory=lambda: set(TOOLS))
    free: int = 1 << 40
    clock: dt.datetime = NOW
    their_clock: dt.datetime | None = None
    listening: str | None = None
    running: bool = False
    serving: bool = False
    where: str = "this host"
    refused: dict[str, str] = field(default_factory=dict)  # users as whom no agent starts
    fetched: bytes | Exception = b""
    agent: list[str] = field(default_factory=list)
    environment: Mapping[str, str] | None = None

    def now(self) -> dt.datetime:
        return self.clock

    def permissions(self, path: Path) -> FilePermissions | None:
        file = self.files.get(str(path))
        if file is None:
            return None
        return FilePermissions(
            file.uid,
            file.mode,
            file.is_directory,
            of_own_group=file.of_own_group,
            is_read_only=file.is_read_only,
        )

    def resolve(self, path: Path) -> Path:
        return Path(self.links.get(str(path), str(path)))

    def read(self, path: Path) -> bytes | None:
        file = self.files.get(str(path))
        return None if file is None else file.content

    def free_bytes(self, path: Path) -> int:
        del path
        return self.free

    def find_tool(self, name: str, directories: str) -> str | None:
        return f"/usr/bin/{name}" if name in self.tools and "/usr/bin" in directories else None

    def run(
        self, argv: Sequence[str], deadline_s: float, environment: Mapping[str, str] | None = None
    ) -> ProcessOutput:
        del deadline_s
        self.environment = environment
        command = " ".join(argv)
        return next(
            (ran for start, ran in self.commands.items() if command.startswith(start)), ProcessOutput(None)
        )

    def listen_error(self, address: str, port: int) -> str | None:
        del address, port
        return self.listening

    def accepts_connections(self, unix_socket: Path) -> bool:
        del unix_socket
        return self.running

    def serves(self, address: str, port: int, certificate: bytes) -> bool:
        del address, port, certificate
        return self.serving

    def agent_error(self, user: UnixUser) -> str | None:
        return self.refused.get(user.name)

    def fetch(self, url: str, access: ApiAccess) -> bytes:
        del url, access
        if isinstance(self.fetched, Exception):
            raise self.fetched
        return self.fetched

    def time_at(self, url: str, access: ApiAccess) -> dt.datetime | None:
        del url, access
        return self.their_clock

    def agent_problems(self, path: Path) -> list[str]:
        del path
        return self.agent

    def account(self, name: str) -> UnixAccount | None:
        return self.accounts.get(name)

    def account_of(self, uid: int) -> UnixAccount | None:
        return next((account for account in self.accounts.values() if account.uid == uid), None)

    def group(self, name: str) -> int | None:
        return self.groups.get(name)


def refuses(why: str) -> ApiServerUnavailable:
    return ApiServerUnavailable(why)
