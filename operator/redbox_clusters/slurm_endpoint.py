"""SlurmEndpoint: the red-box of one namespace, as users of that namespace write it.

It is a SlurmCluster for the SlurmJobs of its own namespace, with container delivery. Its audience is computed
from namespace and uid, and never read from the object: an author who chose it could collect tokens that are
valid at another red-box.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from redbox_clusters.names import GROUP, VERSION
from redbox_clusters.slurm_cluster import SlurmCluster, SlurmClusterSpec
from redbox_kube.api.kinds import Kind
from redbox_kube.status.models import KubeModel

SEPARATOR = "/"
"""Between namespace and name in a key; no SlurmCluster's name has it."""
KEPT = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
AUDIENCE_FILE = "audience"
"""The key of its ConfigMap, which is the name of a file where the ConfigMap is mounted."""


class SlurmEndpointSpec(KubeModel):
    """A Slurm cluster behind a red-box of this namespace."""

    endpoint: str = Field(pattern=r"^https://[^/]+$", max_length=512, description="The URL of its red-box.")
    ca_bundle: bytes = Field(max_length=65536, description="The CA of its certificate: PEM, in base64.")
    abandon_jobs: bool = Field(
        default=False,
        description="SlurmJobs of this SlurmEndpoint are deleted without cancelling their jobs: for a "
        "red-box or a Slurm cluster that never comes back.",
    )

    @field_validator("ca_bundle", mode="before")
    @classmethod
    def _decoded(cls, given: object) -> object:
        return SlurmClusterSpec._decoded(given)  # noqa: SLF001 (the same field)


class SlurmEndpoint(SlurmCluster):
    """A SlurmEndpoint as stored at the API server, with the spec of a SlurmCluster."""

    kind: ClassVar[str] = "SlurmEndpoint"

    @property
    def key(self) -> str:
        return endpoint_key(self.namespace, self.name)

    @property
    def config_map(self) -> str:
        """The name of the ConfigMap with its audience."""
        return f"{self.name}-audience"

    @model_validator(mode="before")
    @classmethod
    def _as_cluster(cls, raw: object) -> object:
        if not isinstance(raw, dict) or not isinstance(raw.get("metadata"), dict):
            return raw
        own = SlurmEndpointSpec.model_validate(raw.get("spec"))
        spec = {**own.model_dump(), "audience": audience_of(raw["metadata"])}
        return {**raw, "metadata": kept_metadata(raw["metadata"]), "spec": spec}


SLURM_ENDPOINTS = Kind(GROUP, VERSION, "slurmendpoints", "SlurmEndpoint", model=SlurmEndpoint)


def kept_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of its metadata: users of its namespace fill the rest as they like."""
    return {key: metadata[key] for key in KEPT if key in metadata}


def audience_of(metadata: Mapping[str, Any]) -> str:
    """The audience of tokens for this SlurmEndpoint's red-box alone: no other object ever has its uid."""
    return f"redbox.dev/ns/{metadata['namespace']}/{metadata['uid']}"


def endpoint_key(namespace: str, name: str) -> str:
    """The key of a SlurmEndpoint among all SlurmClusters and SlurmEndpoints."""
    return f"{namespace}{SEPARATOR}{name}"


def is_endpoint(key: str) -> bool:
    """Whether the key is that of a SlurmEndpoint."""
    return SEPARATOR in key


def namespace_of(key: str) -> str:
    """That of the SlurmEndpoint with this key."""
    return key.partition(SEPARATOR)[0]


def is_visible(key: str, namespace: str) -> bool:
    """Whether SlurmJobs of this namespace may use it: SlurmEndpoints of other namespaces they may not."""
    return not is_endpoint(key) or key.startswith(f"{namespace}{SEPARATOR}")


def title_of(key: str) -> str:
    """As messages name it, also where it does not exist."""
    return f"SlurmEndpoint {key.partition(SEPARATOR)[2]}" if is_endpoint(key) else f"SlurmCluster {key}"


def read_cluster(raw: Mapping[str, Any]) -> SlurmCluster:
    """A SlurmCluster or a SlurmEndpoint; only the latter has a namespace."""
    kind = SlurmEndpoint if "namespace" in raw["metadata"] else SlurmCluster
    return kind.model_validate(raw)
