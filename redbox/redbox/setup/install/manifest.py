"""What `redbox init` prints for the Kubernetes side: the SlurmCluster, and how to get the cluster's keys."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class SlurmClusterManifest:
    """What a Kubernetes cluster must know of this red-box."""

    name: str
    endpoint: str
    audience: str
    ca_certificate: bytes


def render_slurm_cluster(introduction: SlurmClusterManifest) -> str:
    """The manifest, for kubectl apply -f -."""
    manifest = {
        "apiVersion": "redbox.dev/v1alpha1",
        "kind": "SlurmCluster",
        "metadata": {"name": introduction.name},
        "spec": {
            "endpoint": introduction.endpoint,
            "audience": introduction.audience,
            "caBundle": base64.b64encode(introduction.ca_certificate).decode(),
        },
    }
    return yaml.safe_dump(manifest, sort_keys=False, width=10_000)


def key_instructions(cluster: str, keys_file: Path) -> str:
    """What to run where kubectl reaches the cluster, and what to copy here."""
    return (
        f"On a machine with kubectl for cluster {cluster}:\n"
        f"    kubectl get --raw /openid/v1/jwks > {keys_file.name}\n"
        "    kubectl get --raw /.well-known/openid-configuration    # its issuer: that of redbox.yaml\n"
        f"Copy {keys_file.name} to {keys_file} on this host; it holds public keys only."
    )
