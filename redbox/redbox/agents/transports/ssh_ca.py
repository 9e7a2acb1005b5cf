"""Red-box's own SSH certificate authority: a key for each start of an agent, certified for five minutes.

The certificate is valid for one user, from the server's addresses, for the one command that starts an agent:
no terminal, no forwarding, no rc file. Nothing of it is written to disk. The configuration of sshd, with the
group of users whose certificates it accepts, is in `redbox.agents.install_texts`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import asyncssh
from asyncssh.public_key import SSHOpenSSHCertificate as OpenSshCertificate
from cryptography.hazmat.primitives.serialization import SSHCertificate, load_ssh_public_identity

from redbox.agents.errors import AgentRefused
from redbox.agents.transports.bootstrap import COMMAND
from redbox.core.domain import UnixUser
from redbox.core.secret_files import is_private

VALID_S = 300
SKEW_S = 30  # of these lie in the past, for a login node whose clock is behind
KEY_TYPE = "ssh-ed25519"
CERTIFICATE = "-cert.pub"
NOTHING = "/bin/false"
FOREVER = 2**36
"""The year 4147: a certificate that ends later, ssh-keygen's `forever` among them, does not end."""


@dataclass(frozen=True, slots=True)
class SshCredential:
    """A private key for a login, with its certificate where there is one.

    `identity` is the same for the same user and key; for keys that are made for each login it is the user.
    """

    key: asyncssh.SSHKey
    certificate: asyncssh.SSHCertificate | None = None
    identity: str = ""


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
        return self._certified(user, COMMAND, may_forward=False)

    def jump_credential(self, user: UnixUser) -> SshCredential:
        return self._certified(user, NOTHING, may_forward=True)

    def expires_at(self) -> float | None:
        """Never: a certificate is made for each login."""
        return None

    def _certified(self, user: UnixUser, command: str, *, may_forward: bool) -> SshCredential:
        now = int(self._clock())
        key = asyncssh.generate_private_key(KEY_TYPE)
        certificate = self._key.generate_user_certificate(
            key,
            f"redbox/{user.name}",
            principals=[user.name],
            valid_after=now - SKEW_S,
            valid_before=now - SKEW_S + VALID_S,
            force_command=command,
            source_address=self._addresses,
            permit_x11_forwarding=False,
            permit_agent_forwarding=False,
            permit_port_forwarding=may_forward,
            permit_pty=False,
            permit_user_rc=False,
        )
        return SshCredential(key, certificate, user.name)


class KeyDirectory:
    """Private keys of users, each in a file with the user's name that only the server can read.

    Beside it may be a certificate that the site has signed, USER-cert.pub as ssh-keygen calls it. Both are
    read for each login, so that a replaced one is used from the next login on.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def credential(self, user: UnixUser) -> SshCredential:
        key = read_private_key(self._directory / user.name)
        certificate = read_certificate(self._certificate_path(user))
        identity = f"{user.name} {key.get_fingerprint()}"
        if certificate is not None:
            self._check(certificate, key, user)
            identity += hashlib.sha256(certificate.public_data).hexdigest()
        return SshCredential(key, certificate, identity)

    def jump_credential(self, user: UnixUser) -> SshCredential:
        return self.credential(user)

    def expires_at(self) -> float | None:
        """When the first of the certificates ends, in seconds since the epoch; None: none ends."""
        ends = [self._end_of(path) for path in sorted(self._directory.glob(f"*{CERTIFICATE}"))]
        return min((end for end in ends if end is not None), default=None)

    def _check(self, certificate: OpenSshCertificate, key: asyncssh.SSHKey, user: UnixUser) -> None:
        """Refuse what sshd would refuse, without a login that fails."""
        path = self._certificate_path(user)
        after, before = validity_of(certificate)
        now = time.time()
        if certificate.key.public_data != key.public_data:
            raise AgentRefused(
                f"{path} certifies another key than {user.name} beside it: replace both together"
            )
        if certificate.principals and user.name not in certificate.principals:
            names = ", ".join(certificate.principals)
            raise AgentRefused(
                f"{path} is for {names}, not for {user.name}: have one signed for that account"
            )
        if now >= before:
            raise AgentRefused(f"{path} expired at {_time(before)}: put a new one in its place")
        if now < after - SKEW_S:
            raise AgentRefused(
                f"{path} is valid only from {_time(after)} on, and here it is {_time(now)}: compare the "
                "clocks of this host and of the one that signed it"
            )

    def _certificate_path(self, user: UnixUser) -> Path:
        return self._directory / f"{user.name}{CERTIFICATE}"

    def _end_of(self, path: Path) -> float | None:
        try:
            certificate = read_certificate(path)
        except AgentRefused:
            return None  # reported by the login that needs it
        end = FOREVER if certificate is None else validity_of(certificate)[1]
        return None if end >= FOREVER else float(end)


def read_private_key(path: Path) -> asyncssh.SSHKey:
    """Read a private key; raises AgentRefused if it is missing, malformed or readable by others."""
    try:
        if not is_private(path.stat()):
            raise AgentRefused(f"{path} is readable by others: chmod 600 {path}")
        return asyncssh.read_private_key(path)
    except (OSError, asyncssh.KeyImportError) as error:
        raise AgentRefused(f"no SSH key for an agent in {path}: {error}") from error


def read_certificate(path: Path) -> OpenSshCertificate | None:
    """Read a user certificate; None without a file; raises AgentRefused."""
    try:
        certificate = asyncssh.read_certificate(path)
    except FileNotFoundError:
        return None
    except (OSError, asyncssh.KeyImportError) as error:
        raise AgentRefused(f"no SSH certificate can be read from {path}: {error}") from error
    if not isinstance(certificate, OpenSshCertificate):
        raise AgentRefused(f"{path} is not a certificate that ssh-keygen has signed: put such a one there")
    return certificate


def validity_of(certificate: OpenSshCertificate) -> tuple[int, int]:
    """From when to when it is valid, in seconds since the epoch."""
    read = load_ssh_public_identity(certificate.export_certificate())
    assert isinstance(read, SSHCertificate)  # noqa: S101 # asyncssh's own text of it
    return read.valid_after, read.valid_before


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
