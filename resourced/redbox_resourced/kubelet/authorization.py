"""Who may use the kubelet API: the holder of a client certificate whom the API server lets at nodes.

The TLS handshake has shown that the cluster's client CA signed the certificate; other kubelets and plain
users have such certificates too. So each request is put to the API server (SubjectAccessReview), as a kubelet
does it: `nodes/log`, `nodes/stats`, …, else `nodes/proxy`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, ResourcePath

API_VERSION = "authorization.k8s.io/v1"
REVIEWS = ResourcePath("SubjectAccessReview", api_version=API_VERSION)
EVERYBODY = "system:authenticated"
ALLOWED_FOR_S = 300.0  # both as the kubelet's own defaults
REFUSED_FOR_S = 30.0
MOST_REMEMBERED = 1024


@dataclass(frozen=True)
class KubeletClient:
    """Who a certificate is for: its common name is the user, its organizations are the groups."""

    user: str
    groups: tuple[str, ...]

    @classmethod
    def of(cls, certificate: dict[str, Any]) -> KubeletClient | None:
        """From what `ssl` says of the peer; None where no user is named."""
        parts = [part for names in certificate.get("subject", ()) for part in names]
        users = [value for name, value in parts if name == "commonName"]
        groups = [value for name, value in parts if name == "organizationName"]
        return cls(users[-1], (*groups, EVERYBODY)) if users and users[-1] else None


@dataclass(frozen=True)
class NodeAccess:
    """What is asked: a verb, a part of a node, and which node; an empty name is all of them."""

    verb: str
    part: str
    node: str = ""


@dataclass
class Authorizer:
    """Asks the API server, and remembers its answers for a while."""

    objects: ObjectClient
    _known: dict[tuple[KubeletClient, NodeAccess], tuple[bool, float]] = field(default_factory=dict)

    async def allows(self, client: KubeletClient, access: NodeAccess) -> bool:
        """Whether the client may; raises ApiError where nobody can say."""
        now = asyncio.get_running_loop().time()
        allowed, until = self._known.get((client, access), (False, 0.0))
        if now < until:
            return allowed
        allowed = await self._ask(client, access) or await self._ask(
            client, NodeAccess(access.verb, "proxy", access.node)
        )
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[client, access] = allowed, now + (ALLOWED_FOR_S if allowed else REFUSED_FOR_S)
        return allowed

    async def _ask(self, client: KubeletClient, access: NodeAccess) -> bool:
        attributes: Object = {"verb": access.verb, "resource": "nodes", "subresource": access.part}
        if access.node:
            attributes["name"] = access.node
        spec = {"user": client.user, "groups": list(client.groups), "resourceAttributes": attributes}
        body = {"apiVersion": API_VERSION, "kind": "SubjectAccessReview", "spec": spec}
        review = await self.objects.create(REVIEWS, body)
        if review is None:
            raise ApiRefused(409, "the API server did not review the access")
        return bool(review.get("status", {}).get("allowed", False))
