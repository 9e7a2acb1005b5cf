"""A provisioner between an API server and a red-box in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from redbox_api.errors import NoSuchJob, RedboxError
from redbox_api.models import OwnerRef, Problem, VolumeFolder, VolumeRequest
from redbox_api.requests.sender import TokenSource
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.volumes.provisioner import DirectoryProvisioner
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import slurm_cluster
from tests.resourced.volumes.factories import FOLDER, UID, consumer, storage_class, virtual_node

CLAIM = ResourcePath(kinds.PERSISTENT_VOLUME_CLAIM, "data", "alice")
CLASS = ResourcePath(kinds.STORAGE_CLASS, "redbox")
VOLUME = ResourcePath(kinds.PERSISTENT_VOLUME, f"pvc-{UID}")
OWN = "resourced"


def pod_of(account: str) -> ResourcePath:
    return ResourcePath(kinds.POD, f"pod-of-{account}", "alice")


def problem(detail: str, status: int = 403) -> Problem:
    return Problem(type="https://redbox.dev/problems/x", title="It is refused", status=status, detail=detail)


class Redbox:
    """Folders by handle, and the requests: who asked for what."""

    def __init__(self) -> None:
        self.folders: set[str] = set()
        self.requests: list[tuple[str, str, str]] = []
        self.faults: list[RedboxError] = []
        self.lasting_fault: RedboxError | None = None
        self.hangs = False
        self.slow_deletes: set[str] = set()
        """Handles of folders with very many files."""
        self.during_put: Callable[[], None] | None = None
        self.asked: list[VolumeRequest] = []
        self._who = OWN

    def speaking_for(self, token: TokenSource) -> Any:
        return Speaker(self, token)

    async def put(self, who: str, handle: str, request: VolumeRequest) -> VolumeFolder:
        self._receive("put", who, handle)
        if self.hangs:
            await asyncio.Event().wait()
        self.asked.append(request)
        self.folders.add(handle)
        if self.during_put:
            self.during_put()
        owner = OwnerRef(cluster="prod", namespace="alice", account="default")
        return VolumeFolder(handle=handle, owner=owner, user="alice", claim="data", path=FOLDER, made=True)

    async def delete_volume(self, handle: str) -> None:
        self._receive("delete", OWN, handle)
        if handle in self.slow_deletes:
            await asyncio.Event().wait()
        if handle not in self.folders:
            raise NoSuchJob(problem("There is no such volume, or it is not yours.", 404))
        self.folders.discard(handle)

    def _receive(self, verb: str, who: str, handle: str) -> None:
        self.requests.append((verb, who, handle))
        if self.faults:
            raise self.faults.pop(0)
        if self.lasting_fault:
            raise self.lasting_fault


class Speaker:
    """A client with the token of somebody else."""

    def __init__(self, redbox: Redbox, token: TokenSource) -> None:
        self._redbox = redbox
        self._token = token

    async def put_volume(self, handle: str, request: VolumeRequest) -> VolumeFolder:
        return await self._redbox.put(await self._token(), handle, request)


class World:
    """What there is, and the provisioner while it runs."""

    def __init__(self) -> None:
        self.api = FakeApiServer()
        self.redbox = Redbox()
        cluster = slurm_cluster()
        self.clusters = SimpleNamespace(
            synced=True,
            on_change=[],
            invalid={},
            followed={"hpc1": SimpleNamespace(cluster=cluster, client=self.redbox)},
            of_node=lambda name: (
                ClusterConnection(cluster, cast("Any", self.redbox)) if name.startswith("hpc1.") else None
            ),
        )
        self.api.put(CLASS, storage_class())
        self.api.put(ResourcePath(kinds.NODE, "hpc1.debug"), virtual_node())
        for account in ("default", "ci"):
            self.api.put(pod_of(account), consumer(account))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        provisioner = DirectoryProvisioner(self.api.client, cast("ClusterRegistry", self.clusters))
        task = asyncio.create_task(provisioner.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110 (other tasks of this loop)
                await asyncio.sleep(0.005)

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(event["reason"], event["message"]) for event in self.api.events]

    async def refusal(self) -> str:
        """The sentence of the first event."""
        async with self.running():
            await self.until(lambda: self.api.events)
        [(reason, message)] = self.events
        assert reason == "ProvisioningFailed"
        assert VOLUME not in self.api.objects
        return message

    async def provisioned(self) -> dict[str, Any]:
        async with self.running():
            await self.until(lambda: VOLUME in self.api.objects and self.api.events)
        return self.api.objects[VOLUME]
