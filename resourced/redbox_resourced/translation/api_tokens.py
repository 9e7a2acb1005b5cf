"""Tokens for the API server: which ones a pod asks for, for how long, and where containers find the server.

A file of a running job is never replaced, so a token is issued once, for the time that the job may wait and
run. It is bound to the pod and is void a minute after the pod's deletion began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from redbox_api.pod_parts import PodEnv
from redbox_clusters.slurm_cluster import PodsSpec
from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.references import PodReferences

QUEUE_S = 24 * 3600
"""How long a job may wait and pull its images before its activeDeadlineSeconds begins to count."""
LONGEST_S = 7 * 24 * 3600
"""As the policy redbox-tokens has it. Never 3607 s: for these the API server issues a token of a year."""
REDBOX_S = 3600
HTTPS_PORT = 443
DEFAULT_TOKEN_SOURCES: list[dict[str, Any]] = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
            ]
        }
    },
]
"""What the API server gives each pod. Without a token its ca.crt and namespace become files all the same."""


@dataclass(frozen=True)
class TokenSource:
    """A serviceAccountToken of a projected volume; an empty audience is the API server's own."""

    volume: str
    audience: str
    is_default: bool
    """It is of the volume that the API server adds: a pod does without it."""


def is_default_volume(volume: Object) -> bool:
    sources = (volume.get("projected") or {}).get("sources") or ()
    return volume["name"].startswith("kube-api-access-") and list(sources) == DEFAULT_TOKEN_SOURCES


def token_sources(pod: Object) -> Iterator[TokenSource]:
    """In the order of the spec."""
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if (token := source.get("serviceAccountToken")) is not None:
                yield TokenSource(volume["name"], token.get("audience") or "", is_default_volume(volume))


def token_lifetime_s(pod: Object, audience: str) -> int:
    """Until the pod's deadline, whatever shorter time it asks for: nothing renews the file.

    For a red-box an hour: red-boxes accept none that live longer.
    """
    if audience.startswith("redbox.dev/"):
        return REDBOX_S
    deadline = pod["spec"].get("activeDeadlineSeconds")
    return LONGEST_S if deadline is None else min(int(deadline) + QUEUE_S, LONGEST_S)


def api_server_env(references: PodReferences, settings: PodsSpec) -> list[PodEnv]:
    """The first variables of each container, as kubelets set them: only where the pod got a token."""
    if not references.tokens or settings.api_server is None:
        return []
    host, port = _address(settings.api_server)
    values: Mapping[str, str] = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
    return [PodEnv(name=name, value=value) for name, value in values.items()]


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or HTTPS_PORT
    except ValueError:
        host, port = None, HTTPS_PORT
    if not host or "$" in host:
        raise Unsupported(f"spec.pods.apiServer of the SlurmCluster, {url!r}, has no host and port")
    return host, port
