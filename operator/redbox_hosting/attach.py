"""A red-box for a hosted cluster: its keys, made once in the cluster, and its certificate, renewed in time.

The chart runs this as a Job, and each week again. It creates what is not there, and of what is there it
replaces the server's certificate alone: marks on jobs are signed with one of these keys. The public halves
are in a ConfigMap, for the LoginSet and the SlurmCluster, which name it.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from redbox_hosting.build.pods.login import TRUSTED_CA
from redbox_hosting.controllers.clusters.certificates import ClusterAuthority
from redbox_hosting.controllers.clusters.secret_files import decoded
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.controller.steps import StepFailed
from redbox_kube.install.crd_commands import CommandFailed
from redbox_kube.runtime.clock import now as system_clock

SSH_CA, MARK, CA = "ssh-privatekey", "mark.secret", "ca.crt"


@dataclass(frozen=True)
class AttachedRedbox:
    """The names of its objects."""

    name: str
    """Of its Secret, of the ConfigMap with what is public of that, and of its Service."""
    namespace: str

    @property
    def hosts(self) -> list[str]:
        host = f"{self.name}.{self.namespace}"
        return [f"{host}.svc", f"{host}.svc.cluster.local", host, self.name, "localhost"]


async def attach(
    objects: ObjectClient, redbox: AttachedRedbox, clock: Callable[[], datetime] = system_clock
) -> str:
    """Make what is missing or old; a sentence that says what was done."""
    where = ResourcePath(kinds.SECRET, redbox.name, redbox.namespace)
    secret = await objects.get(where)
    if secret is None:
        files = new_files(redbox, clock())
        if await objects.create(where.all(), _object("Secret", redbox.name, data=_encoded(files))) is None:
            raise CommandFailed(f"Secret {redbox.name} was created by somebody else at the same moment")
        did = "created"
    else:
        files = decoded(secret)
        renewed = _renewed(redbox, files, clock())
        if renewed:
            version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
            if await objects.merge(where, {"metadata": version, "data": _encoded(renewed)}) is None:
                raise CommandFailed(f"Secret {redbox.name} was changed by somebody else at the same moment")
        did = "has a new certificate" if renewed else "is there and stays as it is"
    data = {TRUSTED_CA: _public_ssh_ca(redbox, files), CA: files[CA].decode()}
    await objects.apply(ResourcePath(kinds.CONFIG_MAP, redbox.name, redbox.namespace), {"data": data})
    return f"Secret {redbox.name} {did}"


def new_files(redbox: AttachedRedbox, now: datetime) -> dict[str, bytes]:
    """Of the Secret."""
    authority = ClusterAuthority.make(f"red-box CA of {redbox.name}.{redbox.namespace}", now)
    return {
        MARK: secrets.token_hex(32).encode(),
        SSH_CA: Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        ),
        **{name: authority.files[name] for name in (CA, "ca.key")},
        **_certificate(authority, redbox, now),
    }


def _renewed(redbox: AttachedRedbox, files: Mapping[str, bytes], now: datetime) -> dict[str, bytes]:
    """The certificate and its key, if they are old. red-box reads them again without a restart."""
    try:
        authority = ClusterAuthority.read(files)
    except StepFailed as error:
        raise CommandFailed(f"Secret {redbox.name}: {error}") from error
    return _certificate(authority, redbox, now) if authority.is_due(files, now) else {}


def _certificate(authority: ClusterAuthority, redbox: AttachedRedbox, now: datetime) -> dict[str, bytes]:
    made = authority.issue("red-box", redbox.hosts, now)
    return {name: made[name] for name in ("tls.crt", "tls.key")}


def _public_ssh_ca(redbox: AttachedRedbox, files: Mapping[str, bytes]) -> str:
    """For the LoginSet, whose pods wait for it."""
    try:
        public = serialization.load_ssh_private_key(files[SSH_CA], None).public_key()
    except (KeyError, ValueError) as error:
        raise CommandFailed(
            f"Secret {redbox.name} has no SSH authority in {SSH_CA}, delete it: {error}"
        ) from error
    line = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    return f"{line} {redbox.name}\n"


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def _object(kind: str, name: str, **more: object) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}
