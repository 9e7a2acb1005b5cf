"""A Lease in each namespace that a controller writes to: two installations never write the same objects.

The Lease has the newest format of objects that any release has written there. A controller of an older format
may create objects and write statuses, and must delete nothing: it could not tell what is still wanted.

Anybody who may write Leases in a namespace may take its Lease, or delete the namespace. That stops the writes
there, and the Lease is acquired again as soon as it is free; no other namespace notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from redbox_kube.api.lease import Lease, LeaseLost
from redbox_kube.api.objects import ObjectClient

log = structlog.get_logger(__name__)
AGAIN_S = 5.0


class NamespaceLeases:
    """`run` it beside the controllers, which ask before they write or delete."""

    def __init__(
        self, objects: ObjectClient, namespaces: Sequence[str], name: str, *, object_format: int
    ) -> None:
        self._leases = {
            namespace: Lease(objects, namespace, name, object_format=object_format)
            for namespace in namespaces
        }
        self._held: set[str] = set()

    def may_write(self, namespace: str) -> bool:
        return namespace in self._held

    def why_not_delete(self, namespace: str) -> str:
        """Empty if deletions are safe there."""
        if namespace not in self._held:
            return self.why_not(namespace)
        if self._leases[namespace].is_outdated:
            return "a newer release of the operator has written in this namespace, upgrade this one"
        return ""

    def why_not(self, namespace: str) -> str:
        """For a condition: who holds it."""
        lease = self._leases.get(namespace)
        if lease is None:
            return f"the namespace {namespace} is not served"
        return f"the Lease {lease.name} of the namespace is held by {lease.leader or 'nobody yet'}"

    async def run(self, changed: Callable[[str], None]) -> None:
        """Hold those that are free, until cancelled; `changed` is called with each acquired or lost one."""
        async with asyncio.TaskGroup() as group:
            for namespace in self._leases:
                group.create_task(self._keep_holding(namespace, changed))

    async def _keep_holding(self, namespace: str, changed: Callable[[str], None]) -> None:
        while True:
            try:
                await self._hold(namespace, changed)
            except* LeaseLost as lost:
                log.warning("lease lost", namespace=namespace, error=str(lost.exceptions[0]))
            await asyncio.sleep(AGAIN_S)

    async def _hold(self, namespace: str, changed: Callable[[str], None]) -> None:
        async with self._leases[namespace].leading():
            self._held.add(namespace)
            changed(namespace)
            try:
                await asyncio.Event().wait()
            finally:  # before the Lease is released
                self._held.discard(namespace)
                changed(namespace)
