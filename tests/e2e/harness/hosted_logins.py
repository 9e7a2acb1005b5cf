"""Logins to a hosted Slurm by ssh, from slurmctld's pod, with one key for all users of a ConfigMap."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.e2e.harness.hosted_slurm import CLUSTER, NAMESPACE, SLURMCTLD, HostedSlurm
from tests.e2e.harness.waiting import eventually

LOGIN = "login-login"
OPTIONS = (
    *("-i", "/tmp/id", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
    *("-o", f"HostKeyAlias={LOGIN}", "-o", "UserKnownHostsFile=/tmp/hosts"),
)
"""The host key must be the one in the Secret."""


@dataclass(frozen=True)
class KeyPair:
    """In OpenSSH's format."""

    private: str
    public: str


def new_key_pair() -> KeyPair:
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return KeyPair(private.decode(), public.decode() + "\n")


@dataclass(frozen=True)
class HostedLogins:
    """The LoginSet `login`, and users' key in slurmctld's pod, from which they come."""

    slurm: HostedSlurm

    def ssh(self, command: str, *more: str, user: str = "alice", host: str = LOGIN, port: int = 22) -> str:
        """Its stdout; `more` are options of ssh."""
        return self.slurm.run("ssh", *OPTIONS, *more, "-p", str(port), f"{user}@{host}", command)

    def pods(self) -> list[str]:
        """Their host names in the cluster's DNS."""
        return [f"{LOGIN}-{number}.{CLUSTER}-logins.{NAMESPACE}.svc" for number in range(2)]


def open_logins(slurm: HostedSlurm, key: KeyPair) -> HostedLogins:
    """Once sshd takes connections."""
    eventually(lambda: slurm.condition("loginset", "login", "Ready")[0] == "True", what="Ready of login")
    write(slurm, "/tmp/id", key.private)
    secret = slurm.kubernetes.get("secret", LOGIN, NAMESPACE)["data"]["ssh_host_ed25519_key.pub"]
    write(slurm, "/tmp/hosts", f"{LOGIN} {base64.b64decode(secret).decode()}")
    return HostedLogins(slurm)


def write(slurm: HostedSlurm, path: str, text: str) -> None:
    """A file in slurmctld's pod."""
    slurm.kubernetes(
        *("exec", "--stdin", f"--namespace={NAMESPACE}", SLURMCTLD, "--"),
        *("sh", "-c", f"umask 077; cat >{path}"),
        stdin=text,
    )
