"""The output of `redbox init` for Kubernetes: the SlurmCluster, and how to copy the cluster's public keys."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class SlurmClusterManifest:
    """The values of the SlurmCluster for this red-box."""

    name: str
    endpoint: str
    audience: str
    ca_certificate: bytes
    pods: bool = False


def render_slurm_cluster(values: SlurmClusterManifest) -> str:
    manifest = {
        "apiVersion": "redbox.dev/v1alpha1",
        "kind": "SlurmCluster",
        "metadata": {"name": values.name},
        "spec": {
            "endpoint": values.endpoint,
            "audience": values.audience,
            "caBundle": base64.b64encode(values.ca_certificate).decode(),
            **({"pods": {"enabled": True}} if values.pods else {}),
        },
    }
    return yaml.safe_dump(manifest, sort_keys=False, width=10_000)


def key_instructions(cluster: str, keys_file: Path) -> str:
    """The commands to run where kubectl reaches the cluster, and the file to copy here."""
    return (
        f"On a machine with kubectl for cluster {cluster}:\n"
        f"    kubectl get --raw /openid/v1/jwks > {keys_file.name}\n"
        "    kubectl get --raw /.well-known/openid-configuration    # its issuer, as in redbox.yaml\n"
        f"Copy {keys_file.name} to {keys_file} on this host; it contains public keys only."
    )
