"""A Lease in each namespace that a controller writes to: two installations never write the same objects.

The Lease has the newest format of objects that any release has written there. A controller of an older format
may create objects and write statuses, and must delete nothing: it could not tell what is still wanted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from redbox_kube.api.lease import Lease
from redbox_kube.api.objects import ObjectClient


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

    def may_delete(self, namespace: str) -> bool:
        """Whether no newer release has written there."""
        return namespace in self._held and not self._leases[namespace].is_outdated

    def why_not(self, namespace: str) -> str:
        """For a condition: who holds it."""
        lease = self._leases.get(namespace)
        if lease is None:
            return f"the namespace {namespace} is not served"
        return f"the Lease {lease.name} of the namespace is held by {lease.leader or 'nobody yet'}"

    async def run(self, acquired: Callable[[str], None]) -> None:
        """Hold those that are free, until cancelled; a lost one raises LeaseLost, which ends the process."""
        async with asyncio.TaskGroup() as group:
            for namespace in self._leases:
                group.create_task(self._hold(namespace, acquired))

    async def _hold(self, namespace: str, acquired: Callable[[str], None]) -> None:
        try:
            async with self._leases[namespace].leading():
                self._held.add(namespace)
                acquired(namespace)
                await asyncio.Event().wait()
        finally:
            self._held.discard(namespace)
