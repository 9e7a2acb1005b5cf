"""The settings' section `callers`: how callers prove who they are. Which user they become is `mapping`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from redbox.callers.identities import LOCAL_CLUSTER
from redbox.core.durations import Duration
from redbox.core.yaml_document import Section

AUDIENCE_PREFIX = "redbox.dev/"


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError(f"{path} must be an absolute path")
    return path


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
HttpsUrl = Annotated[str, Field(pattern=r"^https://[^\s/?#@]+[^\s?#]*$", max_length=2048)]
ClusterName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]


class TokenReviewSettings(Section):
    """Ask the API server about each token too: a deleted pod's or account's token is refused at once."""

    server: Annotated[HttpsUrl, Field(examples=["https://kube.example:6443"])]
    """The API server."""
    ca_file: AbsolutePath | None = None
    """Its CA; without one, the system's CAs count."""
    token_file: Annotated[AbsolutePath, Field(examples=["/etc/redbox/prod.token"])]
    """A token that may create TokenReviews (ClusterRole system:auth-delegator); may be replaced."""
    cache: Duration = Duration(30)
    """How long an answer is believed."""
    deadline: Duration = Duration(5)
    """How long to wait for an answer; after that the caller gets a 503."""


class ClusterSettings(Section):
    """One Kubernetes cluster whose ServiceAccount tokens are accepted."""

    name: Annotated[ClusterName, Field(examples=["prod"])]
    """What rules, job owners and logs call it."""
    issuer: Annotated[
        str,
        Field(min_length=1, max_length=2048, examples=["https://kubernetes.default.svc.cluster.local"]),
    ]
    """The `iss` of its tokens: kubectl get --raw /.well-known/openid-configuration."""
    audience: Annotated[
        str, Field(pattern=r"^redbox\.dev/[A-Za-z0-9._/-]{1,200}$", examples=["redbox.dev/hpc1/k3v9x2qd7m"])
    ]
    """The `aud` of tokens for this red-box alone, the same as the SlurmCluster's."""
    jwks_file: Annotated[AbsolutePath | None, Field(examples=["/etc/redbox/prod.jwks.json"])] = None
    """Its public keys: kubectl get --raw /openid/v1/jwks. Read again when it changes."""
    jwks_url: HttpsUrl | None = None
    """Or where to fetch them: https://kube.example:6443/openid/v1/jwks."""
    jwks_ca_file: AbsolutePath | None = None
    """The CA of jwks_url; without one, the system's CAs count."""
    jwks_token_file: AbsolutePath | None = None
    """A token for jwks_url, where it asks for one."""
    jwks_refresh: Duration = Duration(300)
    """How often to fetch the keys; a token with an unknown key has them fetched at once."""
    jwks_refetch_interval: Duration = Duration(10)
    """How long to wait at least between two fetches."""
    jwks_deadline: Duration = Duration(5)
    """How long to wait for one fetch."""
    jwks_max_stale: Duration = Duration(86_400)
    """How long keys that cannot be fetched again are trusted."""
    max_token_life: Duration = Duration(3_600)
    """Tokens that were issued for longer are refused."""
    token_review: TokenReviewSettings | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.name == LOCAL_CLUSTER:
            raise ValueError(
                f"a cluster may not be named {LOCAL_CLUSTER}: that is what callers on this host are"
            )
        if (self.jwks_file is None) == (self.jwks_url is None):
            raise ValueError("give exactly one of jwks_file and jwks_url")
        if self.jwks_url is None and (self.jwks_ca_file or self.jwks_token_file):
            raise ValueError("jwks_ca_file and jwks_token_file belong to jwks_url")
        return self


class CallersSettings(Section):
    """Who may call: service accounts of these clusters, holders of tokens, users of this host."""

    clusters: Annotated[tuple[ClusterSettings, ...], Field(max_length=64)] = ()
    """Kubernetes clusters whose ServiceAccount tokens are accepted."""
    leeway: Annotated[Duration, Field(le=300)] = Duration(30)
    """How far the clocks may be apart."""
    tokens_file: AbsolutePath = Path("/var/lib/redbox/tokens.json")
    """Where `redbox token create` keeps the hashes of opaque tokens."""

    @model_validator(mode="after")
    def _names_each_cluster_once(self) -> Self:
        counts = Counter(cluster.name for cluster in self.clusters)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"two clusters are named {twice[0]}")
        return self
