"""Tokens for the API server: which ones a pod asks for, for how long, and where containers find the server.

A token has the life that its volume asks for, and is renewed at four fifths of it, as kubelets do. It is
bound to the pod and is void a minute after the pod's deletion began.
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

DEFAULT_S = 24 * 3600
"""Of the token that the API server gives each pod: that long resourced may nearly be away.

The pod asks for 3607 s: for these the API server issues a token of a year.
"""
LONGEST_S = 7 * 24 * 3600
"""As the policy redbox-tokens has it."""
RENEWED_AT = 0.8
SPREAD = 0.05
"""Of its life: pods that were created together do not renew their tokens together."""
REDBOX_S = HOUR_S = 3600
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
    seconds: int
    """The life that it asks for."""


def token_seconds(source: Object, *, is_default: bool) -> int:
    """Of a serviceAccountToken; Kubernetes' own default is an hour."""
    return DEFAULT_S if is_default else int(source.get("expirationSeconds") or HOUR_S)


def is_default_volume(volume: Object) -> bool:
    sources = (volume.get("projected") or {}).get("sources") or ()
    return volume["name"].startswith("kube-api-access-") and list(sources) == DEFAULT_TOKEN_SOURCES


def token_sources(pod: Object) -> Iterator[TokenSource]:
    """In the order of the spec."""
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if (token := source.get("serviceAccountToken")) is not None:
                is_default = is_default_volume(volume)
                seconds = token_seconds(token, is_default=is_default)
                yield TokenSource(volume["name"], token.get("audience") or "", is_default, seconds)


def token_lifetime_s(pod: Object, audience: str) -> int:
    """The shortest that a volume asks for; for a red-box an hour, since they accept no longer ones."""
    wanted = [source.seconds for source in token_sources(pod) if source.audience == audience]
    return bounded_life_s(min(wanted, default=LONGEST_S), audience)


def bounded_life_s(seconds: int, audience: str) -> int:
    return min(seconds, REDBOX_S if audience.startswith("redbox.dev/") else LONGEST_S)


def renewal_at(seconds: int, now: float, spread: float) -> int:
    """When a token of this life is renewed; `spread` from 0 to 1."""
    return int(now + seconds * (RENEWED_AT - SPREAD * spread))


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
