"""Approves what resourced requests: the serving certificate of the kubelet API of virtual nodes.

The signer of kubelets' certificates wants an approval, because a kubelet could request any address. A request
of resourced is approved for the address of one of its own pods, which is another one after each restart; all
other requests are the administrator's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime

import structlog

from redbox_clusters.serving_requests import RESOURCED, SIGNER, address_of
from redbox_kube.api import kinds
from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath
from redbox_kube.runtime.grouped_warnings import GroupedWarnings

log = structlog.get_logger(__name__)
OF_SIGNER = {"fieldSelector": f"spec.signerName={SIGNER}"}
PODS = {"labelSelector": f"app.kubernetes.io/name={RESOURCED}"}
AGAIN_S = 5.0
"""A pod may request its certificate before the API server shows its address."""


class ServingApproval:
    """Approves while `run` runs."""

    def __init__(self, objects: ObjectClient, namespace: str) -> None:
        self._objects = objects
        self._namespace = namespace
        self._changed = asyncio.Event()
        self._warnings = GroupedWarnings("serving certificate not approved")
        path = ResourcePath(kinds.CERTIFICATE_SIGNING_REQUEST)
        self._waiting = Informer(
            objects, path, selection=OF_SIGNER, reduced=waiting_address, on_change=self._on_change
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._waiting.run())
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), AGAIN_S if self._waiting.items else None)
                self._changed.clear()
                await self._approve_all()

    def _on_change(self, places: set[Place]) -> None:
        del places
        self._changed.set()

    async def _approve_all(self) -> None:
        waiting = {name: address for (_, name), address in self._waiting.items.items()}
        if not waiting:
            return
        try:
            own = [address async for address in self._addresses()]
        except ApiError as error:
            self._warnings.failed(RESOURCED, str(error))
            return
        self._warnings.recovered(RESOURCED)
        for name, address in waiting.items():
            if address not in own:
                continue
            try:
                await self._approve(name, address)
            except ApiError as error:
                self._warnings.failed(name, str(error))
            else:
                self._warnings.recovered(name)

    async def _addresses(self) -> AsyncIterator[str]:
        """Those of resourced's pods."""
        async for page, _ in self._objects.pages(ResourcePath(kinds.POD, namespace=self._namespace), PODS):
            for pod in page:
                for each in pod.get("status", {}).get("podIPs") or ():
                    yield each["ip"]

    async def _approve(self, name: str, address: str) -> None:
        where = ResourcePath(kinds.CERTIFICATE_SIGNING_REQUEST, name)
        condition = {
            "type": "Approved",
            "status": "True",
            "reason": "PodOfResourced",
            "message": f"Requested by resourced for the address of its pod, {address}.",
            "lastUpdateTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
        await self._objects.merge(where, {"status": {"conditions": [condition]}}, subresource="approval")
        log.info("serving certificate approved", request=name, address=address)


def waiting_address(request: Object) -> str | None:
    """The address that it is for, if resourced wrote it and it is not decided yet."""
    is_decided = bool(request.get("status", {}).get("conditions"))
    is_named = request["metadata"]["name"].startswith(f"{RESOURCED}-")
    return address_of(request["spec"]) if is_named and not is_decided else None
