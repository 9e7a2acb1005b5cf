"""Fields that several kinds share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, WithJsonSchema

from redbox_kube.status.models import KubeModel

DNS_LABEL = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
DNS_NAME = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
OPTIONAL_NAME = r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"
"""Charts write an empty name where there is no object."""
WORD = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
"""A name in Slurm: of a partition, an account, a group, a QOS, a user."""
HOST = r"^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$"
SLURM_TIME = r"^(UNLIMITED|INFINITE|[0-9]{1,9}|([0-9]{1,6}-)?[0-9]{1,4}(:[0-9]{2}){0,2})$"

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_NAME)]
SlurmName = Annotated[str, Field(min_length=1, max_length=64, pattern=WORD)]
IntOrPercent = Annotated[
    int | str, WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": r"^[0-9]{1,5}%?$"})
]
SlurmTime = Annotated[str, Field(max_length=20, pattern=SLURM_TIME)]


class Profile(StrEnum):
    """What Slurm's pods may do: everything passes Pod Security baseline, or workers are privileged."""

    PLAIN = "Plain"
    PRIVILEGED = "Privileged"


class Sharing(StrEnum):
    """Whether jobs share a worker."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"


class ObjectRef(KubeModel):
    """An object of the same namespace."""

    name: str = Field("", max_length=253, pattern=OPTIONAL_NAME, description="Its name.")


class SecretKeyRef(KubeModel):
    """A key of a Secret of the same namespace."""

    name: Name = Field(description="The Secret.")
    key: str = Field(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$", description="The key in it.")
    optional: bool | None = Field(None, description="Accepted for compatibility. The key is always required.")


class ConfigMapKeyRef(KubeModel):
    """A key of a ConfigMap of the same namespace."""

    name: Name = Field(description="The ConfigMap.")
    key: str = Field(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$", description="The key in it.")
    optional: bool | None = Field(None, description="Accepted for compatibility. The key is always required.")


class ExternalDaemon(KubeModel):
    """A daemon that runs outside of this namespace."""

    host: str = Field(min_length=1, max_length=253, pattern=HOST, description="Its host name or address.")
    port: int = Field(ge=1, le=65535, description="Its port.")


class JwtKeyFields(KubeModel):
    """The keys that JSON web tokens are signed and verified with."""

    jwt_key_ref: SecretKeyRef | None = Field(
        None, description="The HS256 key of tokens. The operator makes one if this is left out."
    )
    jwt_hs256_key_ref: SecretKeyRef | None = Field(
        None, alias="jwtHs256KeyRef", description="The former name of jwtKeyRef."
    )

    @property
    def jwt_key(self) -> SecretKeyRef | None:
        return self.jwt_key_ref or self.jwt_hs256_key_ref
