"""Red-box's own SSH certificate authority: a key for each start of an agent, certified for five minutes.

The certificate is good for one user, from the server's addresses, for the one command that starts an agent:
no terminal, no forwarding of anything, no rc file. Nothing of it is written to disk. What sshd must be told,
and for whom it may hold, is in `redbox.agents.install_texts`.
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

VALID_S = 300
SKEW_S = 30  # of which so much lies in the past, for a login node whose clock is behind
KEY_TYPE = "ssh-ed25519"


@dataclass(frozen=True, slots=True)
class SshCredential:
    """What a client shows sshd: a private key, and its certificate where there is one."""

    key: asyncssh.SSHKey
    certificate: asyncssh.SSHCertificate | None = None


class CertificateAuthority:
    """Certifies users. `addresses` are those that the login node sees the server under."""

    def __init__(
        self, key: asyncssh.SSHKey, addresses: Sequence[str], *, clock: Callable[[], float] = time.time
    ) -> None:
        if not addresses:
            raise AgentRefused(
                "the SSH CA needs the server's addresses: a certificate that is good anywhere is not made"
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
    """Private keys of users, each in a file of the user's name that only the server may read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def credential(self, user: UnixUser) -> SshCredential:
        return SshCredential(read_private_key(self._directory / user.name))


def read_private_key(path: Path) -> asyncssh.SSHKey:
    """Read a key that nobody else can read; AgentRefused says what is wrong with it."""
    try:
        if path.stat().st_mode & 0o077:
            raise AgentRefused(f"{path} may be read by others: chmod 600 it")
        return asyncssh.read_private_key(path)
    except (OSError, asyncssh.KeyImportError) as error:
        raise AgentRefused(f"no SSH key for an agent in {path}: {error}") from error


def make_authority_key(path: Path) -> str:
    """Make the CA's key, which must not be there yet, and return the line that sshd is to trust."""
    key = asyncssh.generate_private_key(KEY_TYPE, comment="redbox-ca")
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(key.export_private_key())
    return key.export_public_key().decode().strip()
