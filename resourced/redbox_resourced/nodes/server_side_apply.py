"""Fields of Nodes written by server-side apply: a configuration owns its fields, and removes those it drops.

A configuration is sent when it is new, and again after another writer has changed the Node: the API server
records who owns which field and decides whether anything changes. So nothing is compared here, and fields
that a restarted kubelet or a hand with kubectl removed come back. Each request names the resourceVersion that
it follows: a foreign change between two of our requests makes the second one fail with a conflict, instead of
staying unnoticed behind a version of our own.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus

from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, ResourcePath
from redbox_resourced.nodes.node_view import KEYED_MAPS, NodeView
from redbox_shared.printable import printable_texts

OWN_VERSIONS_REMEMBERED = 16


@dataclass(frozen=True)
class ApplyConfiguration:
    """The fields of one field manager, in a Node or in its status."""

    manager: str
    body: Object
    subresource: str = ""
    withdraws: bool = False
    """Removes all fields of this manager: the body has null for each key."""

    @property
    def target(self) -> tuple[str, str]:
        return self.manager, self.subresource

    def digest(self) -> bytes:
        return hashlib.blake2b(json.dumps(self.body, sort_keys=True).encode(), digest_size=16).digest()


@dataclass
class _Applied:
    """What was applied to one Node, and the resourceVersions that resulted."""

    uid: str
    digests: dict[tuple[str, str], bytes] = field(default_factory=dict)
    versions: deque[str] = field(default_factory=lambda: deque(maxlen=OWN_VERSIONS_REMEMBERED))


def withdrawal(node: NodeView, manager: str) -> list[ApplyConfiguration]:
    """Remove the manager's fields, key by key.

    Applying an empty configuration would do the same, but not alone: of a map in which the API server records
    no other owner it then drops the whole, and a kubelet that has just registered owns nothing of `capacity`.
    """
    configurations = []
    for parent, names in KEYED_MAPS.items():
        nulls = {name: dict.fromkeys(sorted(node.owned[manager][name])) for name in names}
        if any(nulls.values()):
            subresource = "status" if parent == "status" else ""
            configurations.append(ApplyConfiguration(manager, {parent: nulls}, subresource, withdraws=True))
    return configurations


class NodeApplier:
    """Applies configurations to Nodes, and remembers which are in force."""

    def __init__(self, objects: ObjectClient) -> None:
        self._objects = objects
        self._applied: dict[str, _Applied] = {}

    async def apply(self, node: NodeView, configurations: Iterable[ApplyConfiguration]) -> None:
        """Send those that are new, or all after a foreign change."""
        applied = self._applied.get(node.name)
        if applied is None or applied.uid != node.uid:
            applied = self._applied[node.name] = _Applied(node.uid)
        if node.version not in applied.versions:
            applied.digests.clear()  # another writer changed the Node
            applied.versions.append(node.version)
        for configuration in configurations:
            digest = configuration.digest()
            if applied.digests.get(configuration.target) == digest:
                continue
            version = await self._send(node, configuration, applied.versions[-1])
            if version is None:
                applied.versions.clear()  # changed or recreated meanwhile: the next reconciliation sees it
                return
            applied.versions.append(version)
            applied.digests[configuration.target] = digest

    def forget(self, node_name: str) -> None:
        self._applied.pop(node_name, None)

    async def _send(self, node: NodeView, configuration: ApplyConfiguration, version: str) -> str | None:
        """The new resourceVersion; None where the Node no longer has the expected one."""
        # The uid keeps the API server from recreating a Node that was deleted a moment ago.
        expected = {"uid": node.uid, "resourceVersion": version}
        metadata = {**configuration.body.get("metadata", {}), **expected}
        body = printable_texts({**configuration.body, "metadata": metadata}, lines=True)
        path, subresource = ResourcePath(kinds.NODE, node.name), configuration.subresource
        try:
            if configuration.withdraws:
                written = await self._objects.merge(path, body, subresource=subresource)
            else:
                written = await self._objects.apply(
                    path, body, field_manager=configuration.manager, subresource=subresource
                )
        except ApiRefused as refusal:
            if refusal.status == HTTPStatus.CONFLICT and not configuration.withdraws:
                return None
            raise
        return None if written is None else str(written["metadata"]["resourceVersion"])
