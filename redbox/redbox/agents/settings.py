"""Section `agents` of the settings: how agents are started, and the bounds and times of their pool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from redbox.core.yaml_document import AbsolutePath, Section

TOOL_PATH = r"^/[A-Za-z0-9._+/-]*(:/[A-Za-z0-9._+/-]*)*$"
HOST = r"^[A-Za-z0-9][A-Za-z0-9.:-]*$"
ACCOUNT = r"^[A-Za-z_][A-Za-z0-9_.-]*$"


class JumpSettings(Section):
    """A host through which the login node is reached, as by ssh -J; its host key is in known_hosts, too."""

    host: Annotated[str, Field(pattern=HOST, examples=["jump.example"])]
    """Its name or address."""
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    """Its sshd's port."""
    user: Annotated[str | None, Field(pattern=ACCOUNT)] = None
    """One account for all users; null: each user's own."""


class SshSettings(Section):
    """The login node on which agents are started with transport ssh."""

    host: Annotated[str, Field(pattern=HOST, examples=["login.example"])]
    """Its name or address. Of several addresses the one that answered last is used while it answers."""
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    """Its sshd's port."""
    jump: JumpSettings | None = None
    known_hosts: AbsolutePath = Path("/etc/redbox/known_hosts")
    """Its host key, or the CA of host keys (@cert-authority), in the format of ssh."""
    ca_key_file: Annotated[AbsolutePath | None, Field(examples=["/etc/redbox/ssh-ca.key"])] = None
    """Red-box's own SSH CA: users log in with certificates of five minutes."""
    addresses: tuple[str, ...] = ()
    """With ca_key_file: the addresses from which red-box connects, as the login node sees them."""
    key_directory: AbsolutePath | None = None
    """Or a directory with one private key for each user, named like the user; beside it USER-cert.pub, if the
    site certifies keys. Both are read for each login."""
    path: Annotated[str | None, Field(pattern=TOOL_PATH, examples=["/opt/slurm/bin:/usr/bin:/bin"])] = None
    """Where Slurm's commands are on the login node; its /etc/redbox/agent.conf takes precedence; null: the
    usual directories."""
    failed_logins: Annotated[int, Field(ge=1)] = 4
    """So many logins may fail in failed_logins_s, all users' together: fail2ban bans at 5 in 10 minutes. They
    are in the file failed-logins beside the journal, so that restarts and redbox check count."""
    failed_logins_s: Annotated[float, Field(gt=0)] = 600.0
    """The time in which they are counted."""
    observer: Annotated[str | None, Field(pattern=ACCOUNT)] = None
    """The account that reads Slurm's queue there; null where red-box itself runs on a login node."""
    accounts: Literal["host", "login_node"] = "host"
    """Where users and groups are looked up: on red-box's own host, or on the login node, by the observer."""

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        if (self.ca_key_file is None) == (self.key_directory is None):
            raise ValueError("give exactly one of ca_key_file and key_directory")
        if (self.ca_key_file is not None) != bool(self.addresses):
            raise ValueError("give addresses together with ca_key_file, and only then")
        if self.accounts == "login_node" and self.observer is None:
            raise ValueError("accounts: login_node needs an observer, as whom accounts are looked up there")
        return self


class PoolSettings(Section):
    """How many agents there may be, and their deadlines. The defaults suit a login node."""

    most_agents: int = 128
    """Agents of all users together; at most half of them are for sessions."""
    most_per_user: int = 2
    """Agents of one user: one for commands, one for files; with sessions, one more. Ended processes count
    until they are reaped; to end agents that do not answer, a user may have one more."""
    start_s: float = 15.0
    """For the start of one agent."""
    idle_s: float = 300.0
    """An agent without work is stopped after so long."""
    idle_check_s: float = 15.0
    """Between two checks for idle agents."""
    leave_s: float = 5.0
    """When red-box stops: how long it waits for its agents to end."""
    first_backoff_s: float = 1.0
    """The pause after a start that failed; it doubles with each further failure."""
    longest_backoff_s: float = 30.0
    """The longest pause between two starts."""


class AgentsSettings(Section):
    """How red-box acts as its users."""

    transport: Literal["sudo", "ssh", "self"] = "sudo"
    """sudo: on this host; ssh: on a login node; self: for its own account only, a personal install."""
    ssh: SshSettings | None = None
    pool: PoolSettings = PoolSettings()

    @property
    def accounts_on_login_node(self) -> bool:
        """Whether this host has no accounts of the users."""
        return self.ssh is not None and self.ssh.accounts == "login_node"

    @model_validator(mode="after")
    def _check_ssh(self) -> Self:
        if (self.transport == "ssh") != (self.ssh is not None):
            raise ValueError("give the section ssh together with transport: ssh, and only then")
        return self
