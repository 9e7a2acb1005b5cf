"""A red-box for a hosted cluster: its keys and certificates, made once and in the cluster.

The chart runs this as a Job. It creates what is not there and replaces nothing: marks on jobs are signed with
one of these keys. The public halves go to those who check them, the LoginSet and the SlurmCluster.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from redbox_hosting.build.pods.login import TRUSTED_CA
from redbox_hosting.controllers.clusters.certificates import ClusterAuthority
from redbox_hosting.controllers.clusters.secret_files import decoded
from redbox_kube.api import kinds
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.install.crd_commands import CommandFailed

SLURM_CLUSTERS = Kind("redbox.dev", "v1alpha1", "slurmclusters", "SlurmCluster", is_namespaced=False)
LIFE = timedelta(days=3640)
"""Of red-box's certificate, within that of its authority."""
SSH_CA, MARK = "ssh-privatekey", "mark.secret"
PATIENCE_S, PAUSE_S = 60, 2
"""Helm creates the SlurmCluster after the Job."""


@dataclass(frozen=True)
class AttachedRedbox:
    """The names of its objects."""

    name: str
    """Of its Secret, of the ConfigMap with the public key of its SSH authority, and of its Service."""
    namespace: str
    slurm_cluster: str

    @property
    def hosts(self) -> list[str]:
        host = f"{self.name}.{self.namespace}"
        return [f"{host}.svc", f"{host}.svc.cluster.local", host, self.name, "localhost"]


async def attach(objects: ObjectClient, redbox: AttachedRedbox) -> str:
    """Make what is missing; a sentence that says what was done."""
    where = ResourcePath(kinds.SECRET, redbox.name, redbox.namespace)
    secret = await objects.get(where)
    made = secret is None
    if secret is None:
        files = new_files(redbox, datetime.now(UTC))
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        secret = await objects.create(where.all(), _object("Secret", redbox.name, data=data))
        if secret is None:
            raise CommandFailed(f"Secret {redbox.name} was created by somebody else at the same moment")
    files = decoded(secret)
    await _publish_ssh_ca(objects, redbox, files)
    await _publish_ca(objects, redbox, files)
    return f"Secret {redbox.name} {'created' if made else 'is there and stays as it is'}"


def new_files(redbox: AttachedRedbox, now: datetime) -> dict[str, bytes]:
    """Of the Secret."""
    authority = ClusterAuthority.make(f"red-box CA of {redbox.slurm_cluster}", now)
    server = authority.issue("red-box", redbox.hosts, now, LIFE)
    return {
        MARK: secrets.token_hex(32).encode(),
        SSH_CA: Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        ),
        **{name: authority.files[name] for name in ("ca.crt", "ca.key")},
        **{name: server[name] for name in ("tls.crt", "tls.key")},
    }


async def _publish_ssh_ca(objects: ObjectClient, redbox: AttachedRedbox, files: Mapping[str, bytes]) -> None:
    """For the LoginSet, whose pods wait for it."""
    try:
        public = serialization.load_ssh_private_key(files[SSH_CA], None).public_key()
    except (KeyError, ValueError) as error:
        raise CommandFailed(
            f"Secret {redbox.name} has no SSH authority in {SSH_CA}, delete it: {error}"
        ) from error
    line = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    where = ResourcePath(kinds.CONFIG_MAP, redbox.name, redbox.namespace)
    await objects.apply(where, {"data": {TRUSTED_CA: f"{line} {redbox.name}\n"}})


async def _publish_ca(objects: ObjectClient, redbox: AttachedRedbox, files: Mapping[str, bytes]) -> None:
    """For the operator and the companions of SlurmJobs."""
    bundle = base64.b64encode(files.get("ca.crt", b"")).decode()
    where = ResourcePath(SLURM_CLUSTERS, redbox.slurm_cluster)
    for _ in range(PATIENCE_S // PAUSE_S):
        if await objects.merge(where, {"spec": {"caBundle": bundle}}) is not None:
            return
        await asyncio.sleep(PAUSE_S)
    raise CommandFailed(f"there is no SlurmCluster {redbox.slurm_cluster}: the chart creates it")


def _object(kind: str, name: str, **more: object) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}
