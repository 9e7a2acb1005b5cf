"""Which transport the settings ask for, and which account looks at Slurm."""

from __future__ import annotations

import os
import pwd

from redbox.agents.errors import AgentRefused
from redbox.agents.ssh_ca import CertificateAuthority, KeyDirectory, read_private_key
from redbox.agents.transports.base import Transport
from redbox.agents.transports.self_ import SelfTransport
from redbox.agents.transports.ssh import Credentials, LoginNode, SshTransport
from redbox.agents.transports.sudo import SudoTransport
from redbox.config import AgentsSettings, SshSettings
from redbox.domain import UnixUser


def transport_of(settings: AgentsSettings) -> Transport:
    """How agents are started."""
    if settings.transport == "ssh" and settings.ssh is not None:
        node = LoginNode(settings.ssh.host, settings.ssh.known_hosts, settings.ssh.port)
        return SshTransport(node, _credentials(settings.ssh))
    return SudoTransport() if settings.transport == "sudo" else SelfTransport()


def observer_of(settings: AgentsSettings) -> UnixUser:
    """Red-box's own account; where it runs away from Slurm's commands, one that it has an agent of."""
    if settings.ssh is None or settings.ssh.observer is None:
        return UnixUser(pwd.getpwuid(os.geteuid()).pw_name, os.geteuid())
    try:
        return UnixUser(settings.ssh.observer, pwd.getpwnam(settings.ssh.observer).pw_uid)
    except KeyError:
        raise AgentRefused(
            f"agents.ssh.observer is {settings.ssh.observer}, and there is no such account here"
        ) from None


def _credentials(settings: SshSettings) -> Credentials:
    if settings.ca_key_file is not None:
        return CertificateAuthority(read_private_key(settings.ca_key_file), settings.addresses)
    if settings.key_directory is None:
        raise AgentRefused("agents.ssh names neither ca_key_file nor key_directory: give one of them")
    return KeyDirectory(settings.key_directory)
