"""Agents on another host, by SSH, as the settings have it."""

from __future__ import annotations

from redbox.agents.errors import AgentRefused
from redbox.agents.settings import SshSettings
from redbox.agents.transports.ssh import CredentialProvider, LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import CertificateAuthority, KeyDirectory, read_private_key


def ssh_transport(settings: SshSettings) -> SshTransport:
    """With whichever credentials there are."""
    node = LoginNode(settings.host, settings.known_hosts, settings.port)
    return SshTransport(node, _credentials(settings))


def _credentials(settings: SshSettings) -> CredentialProvider:
    if settings.ca_key_file is not None:
        return CertificateAuthority(read_private_key(settings.ca_key_file), settings.addresses)
    if settings.key_directory is None:
        raise AgentRefused("agents.ssh names neither ca_key_file nor key_directory: give one of them")
    return KeyDirectory(settings.key_directory)
