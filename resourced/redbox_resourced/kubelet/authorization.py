"""Authorization for the kubelet API: a client certificate whose user may access nodes.

The TLS handshake proves that the cluster's client CA signed the certificate; other kubelets and plain users
have such certificates too. So each request is checked with a SubjectAccessReview, as a kubelet does: first
for `nodes/log`, `nodes/stats`, …, then for `nodes/proxy`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, ResourcePath

REVIEWS = ResourcePath(kinds.SUBJECT_ACCESS_REVIEW)
AUTHENTICATED_GROUP = "system:authenticated"
ALLOWED_FOR_S = 300.0  # both are the kubelet's own defaults
REFUSED_FOR_S = 30.0
CACHE_SIZE = 1024


@dataclass(frozen=True)
class KubeletClient:
    """The subject of a client certificate: its common name is the user, its organizations are the groups."""

    user: str
    groups: tuple[str, ...]

    @classmethod
    def of(cls, certificate: dict[str, Any]) -> KubeletClient | None:
        """From `ssl`'s peer certificate; None where it names no user."""
        parts = [part for names in certificate.get("subject", ()) for part in names]
        users = [value for name, value in parts if name == "commonName"]
        groups = [value for name, value in parts if name == "organizationName"]
        return cls(users[-1], (*groups, AUTHENTICATED_GROUP)) if users and users[-1] else None


@dataclass(frozen=True)
class NodeAccess:
    """A verb on a subresource of a node; an empty name means all nodes."""

    verb: str
    subresource: str
    node: str = ""


@dataclass
class Authorizer:
    """Asks the API server, and caches its decisions."""

    objects: ObjectClient
    _cache: dict[tuple[KubeletClient, NodeAccess], tuple[bool, float]] = field(default_factory=dict)

    async def allows(self, client: KubeletClient, access: NodeAccess) -> bool:
        """Whether the client has this access; raises ApiError where the API server cannot decide."""
        now = asyncio.get_running_loop().time()
        allowed, expires = self._cache.get((client, access), (False, 0.0))
        if now < expires:
            return allowed
        proxy = replace(access, subresource="proxy")
        allowed = await self._review(client, access) or await self._review(client, proxy)
        if len(self._cache) >= CACHE_SIZE:
            self._cache.clear()
        self._cache[client, access] = allowed, now + (ALLOWED_FOR_S if allowed else REFUSED_FOR_S)
        return allowed

    async def _review(self, client: KubeletClient, access: NodeAccess) -> bool:
        attributes: Object = {"verb": access.verb, "resource": "nodes", "subresource": access.subresource}
        if access.node:
            attributes["name"] = access.node
        spec = {"user": client.user, "groups": list(client.groups), "resourceAttributes": attributes}
        body = {
            "apiVersion": kinds.SUBJECT_ACCESS_REVIEW.api_version,
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        review = await self.objects.create(REVIEWS, body)
        if review is None:
            raise ApiRefused(409, "the API server did not review the access")
        return bool(review.get("status", {}).get("allowed", False))
