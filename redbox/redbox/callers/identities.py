"""Identities as they were proved, before any rule makes a Unix user of them."""

from __future__ import annotations

from dataclasses import dataclass

LOCAL_CLUSTER = "local"
"""The owner's cluster of callers that come from no Kubernetes cluster; no cluster may be named so."""


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A Kubernetes service account, and the pod that its token is bound to, if it is bound to one."""

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
    """Somebody with an opaque token; the administrator named its Unix user when making it."""

    token_id: str
    user: str

    def __str__(self) -> str:
        return f"token:{self.token_id}"


@dataclass(frozen=True, slots=True)
class Peer:
    """A process at the other end of the Unix socket, as the kernel vouches for it at its connect()."""

    uid: int
    gid: int
    pid: int

    def __str__(self) -> str:
        return f"uid:{self.uid}"


Identity = ServiceAccount | TokenHolder | Peer
