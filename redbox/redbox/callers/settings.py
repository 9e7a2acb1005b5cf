"""Section `callers` of the settings: how callers prove who they are. Section `mapping` decides the user."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from redbox.callers.identities import LOCAL_CLUSTER
from redbox.core.durations import Duration
from redbox.core.yaml_document import AbsolutePath, Section

AUDIENCE_PREFIX = "redbox.dev/"

HttpsUrl = Annotated[str, Field(pattern=r"^https://[^\s/?#@]+[^\s?#]*$", max_length=2048)]
ClusterName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]


class TokenReviewSettings(Section):
    """Ask the API server about each token too: it refuses tokens of deleted pods and accounts at once."""

    server: Annotated[HttpsUrl, Field(examples=["https://kube.example:6443"])]
    """The API server."""
    ca_file: AbsolutePath | None = None
    """Its CA; null: the CAs of this host."""
    token_file: Annotated[AbsolutePath, Field(examples=["/etc/redbox/prod.token"])]
    """A token that may create TokenReviews (ClusterRole system:auth-delegator); may be replaced."""
    cache: Duration = Duration(30)
    """How long an answer is reused."""
    deadline: Duration = Duration(5)
    """For one answer; after that the caller gets a 503."""


class ClusterSettings(Section):
    """One Kubernetes cluster whose ServiceAccount tokens are accepted."""

    name: Annotated[ClusterName, Field(examples=["prod"])]
    """Its name in rules, job owners and logs."""
    issuer: Annotated[
        str,
        Field(min_length=1, max_length=2048, examples=["https://kubernetes.default.svc.cluster.local"]),
    ]
    """The `iss` of its tokens: kubectl get --raw /.well-known/openid-configuration."""
    audience: Annotated[
        str, Field(pattern=r"^redbox\.dev/[A-Za-z0-9._/-]{1,200}$", examples=["redbox.dev/hpc1/k3v9x2qd7m"])
    ]
    """The `aud` of tokens for this red-box alone, the same as the SlurmCluster's."""
    audience_file: AbsolutePath | None = None
    """Or a file with it, read at the start: the one that a SlurmEndpoint's ConfigMap has."""
    jwks_file: Annotated[AbsolutePath | None, Field(examples=["/etc/redbox/prod.jwks.json"])] = None
    """Its public keys: kubectl get --raw /openid/v1/jwks. Read again when it changes."""
    jwks_url: HttpsUrl | None = None
    """Or where to fetch them: https://kube.example:6443/openid/v1/jwks."""
    jwks_ca_file: AbsolutePath | None = None
    """The CA of jwks_url; null: the CAs of this host."""
    jwks_token_file: AbsolutePath | None = None
    """A token for jwks_url, where it requires one."""
    jwks_refresh: Duration = Duration(300)
    """Between two fetches of the keys; a token with an unknown key causes a fetch at once."""
    jwks_refetch_interval: Duration = Duration(10)
    """Between two fetches, at least."""
    jwks_deadline: Duration = Duration(5)
    """For one fetch."""
    jwks_max_stale: Duration = Duration(86_400)
    """How long keys are trusted while they cannot be fetched again."""
    max_token_life: Duration = Duration(3_600)
    """A token with a longer life is refused."""
    token_review: TokenReviewSettings | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_audience(cls, given: object) -> object:
        file = given.get("audience_file") if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(file, str | Path):
            return given
        if given.get("audience") is not None:
            raise ValueError("give only one of audience and audience_file")
        try:
            return {**given, "audience": Path(file).read_text().strip()}
        except (OSError, ValueError) as error:
            raise ValueError(f"audience_file cannot be read: {error}") from error

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.name == LOCAL_CLUSTER:
            raise ValueError(
                f"a cluster may not be named {LOCAL_CLUSTER}: that name stands for callers on this host"
            )
        if (self.jwks_file is None) == (self.jwks_url is None):
            raise ValueError("give exactly one of jwks_file and jwks_url")
        if self.jwks_url is None and (self.jwks_ca_file or self.jwks_token_file):
            raise ValueError("jwks_ca_file and jwks_token_file belong to jwks_url")
        return self


class CallersSettings(Section):
    """Who may call: service accounts of these clusters, holders of opaque tokens, users of this host."""

    clusters: Annotated[tuple[ClusterSettings, ...], Field(max_length=64)] = ()
    """Kubernetes clusters whose ServiceAccount tokens are accepted."""
    leeway: Annotated[Duration, Field(le=300)] = Duration(30)
    """The greatest difference between the clocks of this host and of the clusters."""
    tokens_file: AbsolutePath = Path("/var/lib/redbox/tokens.json")
    """Where `redbox token create` keeps the hashes of opaque tokens."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        counts = Counter(cluster.name for cluster in self.clusters)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"two clusters are named {twice[0]}")
        return self
