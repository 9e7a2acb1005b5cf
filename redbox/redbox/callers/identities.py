"""Proved identities, before a rule maps them to a Unix user."""

from __future__ import annotations

from dataclasses import dataclass

LOCAL_CLUSTER = "local"
"""The cluster of owners outside of Kubernetes; no cluster may have this name."""


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A Kubernetes service account, and the pod that its token is bound to, if any."""

    cluster: str
    namespace: str
    name: str
    uid: str
    pod: str = ""
    pod_uid: str = ""

    def __str__(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name} of cluster {self.cluster}"


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The holder of an opaque token, whose Unix user the administrator chose when creating it."""

    token_id: str
    user: str

    def __str__(self) -> str:
        return f"token:{self.token_id}"


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of the Unix socket, by its credentials at its connect()."""

    uid: int
    gid: int
    pid: int

    def __str__(self) -> str:
        return f"uid:{self.uid}"


Identity = ServiceAccount | TokenHolder | Peer
