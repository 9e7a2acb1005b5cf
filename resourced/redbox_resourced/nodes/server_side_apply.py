"""What we say of nodes, written by server-side apply: a claim owns its fields, and withdraws those it drops.

A claim is sent when it is new, and again after anybody else has changed the node: then the API server, which
knows who owns what, decides whether anything has to change. So nothing is compared here, and what a kubelet
that was restarted or a hand with kubectl took away comes back. Each claim names the version that it follows:
a change of somebody else's between two claims makes the second one fail, and is seen, rather than pass
unseen under a version of our own.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from redbox_kube.api.objects import ApiRefused, ObjectClient, ResourcePath
from redbox_resourced.nodes.node_view import NodeView

Object = dict[str, Any]
OWN_VERSIONS_REMEMBERED = 16


@dataclass(frozen=True)
class ApplyConfiguration:
    """What one field manager says of a node, of the node itself or of its status."""

    manager: str
    body: Object
    subresource: str = ""
    withdraws: bool = False
    """It takes back all that this manager said: the body has null for each key."""

    @property
    def place(self) -> tuple[str, str]:
        return self.manager, self.subresource

    def digest(self) -> bytes:
        return hashlib.blake2b(json.dumps(self.body, sort_keys=True).encode(), digest_size=16).digest()


@dataclass
class _Said:
    """What was said of one node, and the versions of it that came of that."""

    uid: str
    digests: dict[tuple[str, str], bytes] = field(default_factory=dict)
    versions: deque[str] = field(default_factory=lambda: deque(maxlen=OWN_VERSIONS_REMEMBERED))


def withdrawal(node: NodeView, manager: str) -> list[ApplyConfiguration]:
    """Takes back what this manager said, key by key.

    To apply nothing would do it too, but not alone: of a map in which nobody else is known to own anything,
    the API server then drops the whole, and a kubelet that has just registered owns nothing of `capacity`.
    """
    owned = node.owned[manager]
    metadata = {"labels": _nulls(owned.labels), "annotations": _nulls(owned.annotations)}
    status = {"capacity": _nulls(owned.capacity), "allocatable": _nulls(owned.allocatable)}
    claims = []
    if any(metadata.values()):
        claims.append(ApplyConfiguration(manager, {"metadata": metadata}, withdraws=True))
    if any(status.values()):
        claims.append(ApplyConfiguration(manager, {"status": status}, "status", withdraws=True))
    return claims


def _nulls(keys: Iterable[str]) -> dict[str, None]:
    return dict.fromkeys(sorted(keys))


class NodeApplier:
    """Remembers what was said of which node."""

    def __init__(self, objects: ObjectClient) -> None:
        self._objects = objects
        self._said: dict[str, _Said] = {}

    async def keep(self, node: NodeView, claims: Iterable[ApplyConfiguration]) -> None:
        """Have these hold."""
        said = self._said.get(node.name)
        if said is None or said.uid != node.uid:
            said = self._said[node.name] = _Said(node.uid)
        if node.version not in said.versions:
            said.digests.clear()  # somebody else was here
            said.versions.append(node.version)
        for claim in claims:
            if said.digests.get(claim.place) != claim.digest() and not await self._say(node, claim, said):
                said.versions.clear()  # it has moved, or is another Node by now: the next look sees it
                return

    def forget(self, node_name: str) -> None:
        """It is gone."""
        self._said.pop(node_name, None)

    async def _say(self, node: NodeView, claim: ApplyConfiguration, said: _Said) -> bool:
        """Whether it was still the version that we know."""
        # The uid keeps the API server from making a Node anew that was deleted a moment ago.
        known = {"uid": node.uid, "resourceVersion": said.versions[-1]}
        body = {**claim.body, "metadata": {**claim.body.get("metadata", {}), **known}}
        applied = await self._apply(ResourcePath("Node", node.name), claim, body)
        if applied is None:
            return False
        said.versions.append(applied["metadata"]["resourceVersion"])
        said.digests[claim.place] = claim.digest()
        return True

    async def _apply(self, where: ResourcePath, claim: ApplyConfiguration, body: Object) -> Object | None:
        if claim.withdraws:
            return await self._objects.merge(where, body, subresource=claim.subresource)
        try:
            return await self._objects.apply(
                where, body, field_manager=claim.manager, subresource=claim.subresource
            )
        except ApiRefused as refusal:
            if refusal.status == HTTPStatus.CONFLICT:
                return None
            raise
