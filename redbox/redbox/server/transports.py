"""The agents' transport, from the settings."""

from __future__ import annotations

from pathlib import Path

from redbox.agents.errors import AgentRefused
from redbox.agents.settings import AgentsSettings, SshSettings
from redbox.agents.transports.base import Transport
from redbox.agents.transports.self_ import SelfTransport
from redbox.agents.transports.sudo import SudoTransport


def transport_of(settings: AgentsSettings, journal: Path) -> Transport:
    """`journal` is the directory in which logins that failed are recorded."""
    if settings.transport == "ssh" and settings.ssh is not None:
        return _ssh_transport(settings.ssh, journal)
    return SudoTransport() if settings.transport == "sudo" else SelfTransport()


def _ssh_transport(settings: SshSettings, journal: Path) -> Transport:
    from redbox.agents.transports import (  # noqa: PLC0415 - asyncssh takes 7 MiB, for one of three
        failed_logins,
        ssh,
        ssh_ca,
        ssh_login,
    )

    jump = settings.jump
    node = ssh.LoginNode(
        settings.host,
        settings.known_hosts,
        settings.port,
        jump=ssh_login.SshHost(jump.host, settings.known_hosts, jump.port) if jump else None,
        jump_user=jump.user if jump else None,
        path=settings.path,
        failed_logins=failed_logins.FailedLogins(
            settings.failed_logins, settings.failed_logins_s, journal / failed_logins.FILE
        ),
    )
    if settings.ca_key_file is not None:
        key = ssh_ca.read_private_key(settings.ca_key_file)
        return ssh.SshTransport(node, ssh_ca.CertificateAuthority(key, settings.addresses))
    if settings.key_directory is None:
        raise AgentRefused("agents.ssh has neither ca_key_file nor key_directory: set one of them")
    return ssh.SshTransport(node, ssh_ca.KeyDirectory(settings.key_directory))
