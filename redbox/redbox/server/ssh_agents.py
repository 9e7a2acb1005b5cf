"""The SSH transport of the settings: agents on another host."""

from __future__ import annotations

from redbox.agents.errors import AgentRefused
from redbox.agents.settings import SshSettings
from redbox.agents.transports.ssh import CredentialProvider, LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import CertificateAuthority, KeyDirectory, read_private_key


def ssh_transport(settings: SshSettings) -> SshTransport:
    node = LoginNode(settings.host, settings.known_hosts, settings.port)
    return SshTransport(node, _credentials(settings))


def _credentials(settings: SshSettings) -> CredentialProvider:
    if settings.ca_key_file is not None:
        return CertificateAuthority(read_private_key(settings.ca_key_file), settings.addresses)
    if settings.key_directory is None:
        raise AgentRefused("agents.ssh has neither ca_key_file nor key_directory: set one of them")
    return KeyDirectory(settings.key_directory)
