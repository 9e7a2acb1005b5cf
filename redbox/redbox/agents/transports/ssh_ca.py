"""Red-box's own SSH certificate authority: a key for each start of an agent, certified for five minutes.

The certificate is valid for one user, from the server's addresses, for the one command that starts an agent:
no terminal, no forwarding, no rc file. Nothing of it is written to disk. The configuration of sshd, with the
group of users whose certificates it accepts, is in `redbox.agents.install_texts`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from redbox.agents.errors import AgentRefused
from redbox.agents.transports.bootstrap import COMMAND
from redbox.core.domain import UnixUser
from redbox.core.secret_files import is_private

VALID_S = 300
SKEW_S = 30  # of these lie in the past, for a login node whose clock is behind
KEY_TYPE = "ssh-ed25519"


@dataclass(frozen=True, slots=True)
class SshCredential:
    """A private key for a login, with its certificate where there is one."""

    key: asyncssh.SSHKey
    certificate: asyncssh.SSHCertificate | None = None


class CertificateAuthority:
    """Certifies users. `addresses` are the server's, as the login node sees them."""

    def __init__(
        self, key: asyncssh.SSHKey, addresses: Sequence[str], *, clock: Callable[[], float] = time.time
    ) -> None:
        if not addresses:
            raise AgentRefused(
                "the SSH CA needs the server's addresses: certificates for any address are not issued"
            )
        self._key = key
        self._addresses = tuple(addresses)
        self._clock = clock

    def credential(self, user: UnixUser) -> SshCredential:
        now = int(self._clock())
        key = asyncssh.generate_private_key(KEY_TYPE)
        certificate = self._key.generate_user_certificate(
            key,
            f"redbox/{user.name}",
            principals=[user.name],
            valid_after=now - SKEW_S,
            valid_before=now - SKEW_S + VALID_S,
            force_command=COMMAND,
            source_address=self._addresses,
            permit_x11_forwarding=False,
            permit_agent_forwarding=False,
            permit_port_forwarding=False,
            permit_pty=False,
            permit_user_rc=False,
        )
        return SshCredential(key, certificate)


class KeyDirectory:
    """Private keys of users, each in a file with the user's name that only the server can read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def credential(self, user: UnixUser) -> SshCredential:
        return SshCredential(read_private_key(self._directory / user.name))


def read_private_key(path: Path) -> asyncssh.SSHKey:
    """Read a private key; raises AgentRefused if it is missing, malformed or readable by others."""
    try:
        if not is_private(path.stat()):
            raise AgentRefused(f"{path} is readable by others: chmod 600 {path}")
        return asyncssh.read_private_key(path)
    except (OSError, asyncssh.KeyImportError) as error:
        raise AgentRefused(f"no SSH key for an agent in {path}: {error}") from error
