"""From a claim to a folder and a volume, and back, with an API server and a red-box in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from redbox_api.client import TokenSource
from redbox_api.errors import Busy, NoSuchJob, NotAllowed, RedboxError, Unreachable
from redbox_api.models import OwnerRef, Problem, VolumeFolder, VolumeRequest
from redbox_kube.api.objects import ApiRefused, ApiUnreachable, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.volumes import provisioner as provisioner_module
from redbox_resourced.volumes.names import FINALIZER, PROVISIONED_BY, PROVISIONER, STORAGE_API
from redbox_resourced.volumes.provisioner import DirectoryProvisioner
from redbox_shared.backoff import Backoff
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import slurm_cluster
from tests.resourced.volumes.factories import FOLDER, UID, claim, storage_class, virtual_node, volume

CLAIM = ResourcePath("PersistentVolumeClaim", "data", "alice")
CLASS = ResourcePath("StorageClass", "redbox", api_version=STORAGE_API)
VOLUME = ResourcePath("PersistentVolume", f"pvc-{UID}")
OWN = "resourced"


def problem(detail: str, status: int = 403) -> Problem:
    return Problem(type="https://redbox.dev/problems/x", title="It is refused", status=status, detail=detail)


class Redbox:
    """Folders by handle, and the requests: who asked for what."""

    def __init__(self) -> None:
        self.folders: set[str] = set()
        self.requests: list[tuple[str, str, str]] = []
        self.faults: list[RedboxError] = []
        self.lasting_fault: RedboxError | None = None
        self.during_put: Callable[[], None] | None = None
        self.asked: list[VolumeRequest] = []
        self._who = OWN

    def speaking_for(self, token: TokenSource) -> Any:
        return Speaker(self, token)

    async def put(self, who: str, handle: str, request: VolumeRequest) -> VolumeFolder:
        self._receive("put", who, handle)
        self.asked.append(request)
        self.folders.add(handle)
        if self.during_put:
            self.during_put()
        owner = OwnerRef(cluster="prod", namespace="alice", account="default")
        return VolumeFolder(handle=handle, owner=owner, user="alice", claim="data", path=FOLDER, made=True)

    async def delete_volume(self, handle: str) -> None:
        self._receive("delete", OWN, handle)
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
        self.api.put(ResourcePath("Node", "hpc1.debug"), virtual_node())

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
        async with asyncio.timeout(10):
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


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(provisioner_module, "BACKOFF", Backoff(0.005, 0.01))
    return World()


# -- making


async def test_a_claim_gets_a_folder_of_its_account_and_a_volume(world: World) -> None:
    world.api.put(CLAIM, claim())
    made = await world.provisioned()
    assert world.redbox.requests == [("put", "token of alice/default for redbox.dev/hpc1/x", UID)]
    assert world.redbox.asked == [VolumeRequest(claim="data")]
    assert made["metadata"]["annotations"] == {PROVISIONED_BY: PROVISIONER}
    assert made["metadata"]["finalizers"] == [FINALIZER]
    spec = made["spec"]
    assert spec["claimRef"]["uid"] == UID
    assert spec["csi"] == {
        "driver": "directory.redbox.dev",
        "volumeHandle": UID,
        "volumeAttributes": {"cluster": "hpc1", "path": FOLDER, "serviceAccount": "default"},
    }
    assert (spec["capacity"], spec["accessModes"]) == ({"storage": "5Gi"}, ["ReadWriteMany"])
    assert (spec["persistentVolumeReclaimPolicy"], spec["storageClassName"]) == ("Delete", "redbox")
    [term] = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "redbox.dev/cluster", "operator": "In", "values": ["hpc1"]}]
    [(reason, message)] = world.events
    assert (reason, FOLDER in message) == ("ProvisioningSucceeded", True)


async def test_the_claim_names_another_account(world: World) -> None:
    world.api.put(CLAIM, claim(account="ci"))
    made = await world.provisioned()
    assert world.redbox.requests[0][1].startswith("token of alice/ci ")
    assert made["spec"]["csi"]["volumeAttributes"]["serviceAccount"] == "ci"


async def test_a_class_that_does_not_wait_names_the_cluster(world: World) -> None:
    world.api.put(CLASS, storage_class(waits=False, parameters={"cluster": "hpc1", "groupShared": "true"}))
    world.api.put(CLAIM, claim(node=""))
    await world.provisioned()
    assert world.redbox.asked == [VolumeRequest(claim="data", group_shared=True)]


async def test_a_class_that_waits_waits_for_a_node(world: World) -> None:
    world.api.put(CLAIM, claim(node=""))
    async with world.running():
        await world.until(lambda: "watch PersistentVolumeClaim" in world.api.asked)
        assert world.redbox.requests == []
        world.api.put(CLAIM, claim())
        await world.until(lambda: VOLUME in world.api.objects)


async def test_a_virtual_node_that_is_gone_names_its_cluster(world: World) -> None:
    world.api.remove(ResourcePath("Node", "hpc1.debug"))
    world.api.put(CLAIM, claim())
    await world.provisioned()


async def test_claims_of_others_are_left_alone(world: World) -> None:
    foreign = claim()
    foreign["metadata"]["annotations"] = {"volume.kubernetes.io/storage-provisioner": "ebs.csi.aws.com"}
    world.api.put(CLAIM, foreign)
    world.api.put(ResourcePath("PersistentVolumeClaim", "bound", "alice"), claim(bound=True))
    world.api.put(VOLUME, {**volume(phase="Released"), "metadata": {"name": "theirs", "annotations": {}}})
    async with world.running():
        await world.until(lambda: "watch PersistentVolume" in world.api.asked)
    assert (world.redbox.requests, world.events, world.api.writes) == ([], [], 0)


# -- what cannot be made


async def test_a_cluster_that_does_not_exist_is_one_sentence(world: World) -> None:
    world.api.put(CLASS, storage_class(waits=False, parameters={"cluster": "hpc9"}))
    world.api.put(CLAIM, claim(node=""))
    expected = "SlurmCluster hpc9, which StorageClass redbox names, does not exist"
    assert await world.refusal() == expected


@pytest.mark.parametrize("name", ["worker-1", "hpc1.example.org"])
async def test_a_real_node_is_no_place_for_it(world: World, name: str) -> None:
    """Not even one whose name begins as a virtual one's."""
    node = virtual_node()
    node["spec"]["providerID"] = f"aws:///{name}"
    world.api.put(ResourcePath("Node", name), node)
    world.api.put(CLAIM, claim(node=name))
    assert f"node {name}, which is no virtual node" in await world.refusal()


@pytest.mark.parametrize(
    ("changed_class", "changed_claim", "words"),
    [
        ({"waits": False}, {"node": ""}, "give it the parameter cluster"),
        (
            {"parameters": {"cluster": "hpc1", "path": "/x"}},
            {},
            "has a parameter path; there are",
        ),
        ({"parameters": {"groupShared": "yes"}}, {}, "is not true or false"),
        ({"mountOptions": ["ro"]}, {}, "remove them"),
        ({}, {"volumeMode": "Block"}, "no block device"),
        ({}, {"dataSource": {"kind": "VolumeSnapshot", "name": "x"}}, "leave out dataSource"),
        ({}, {"selector": {"matchLabels": {"a": "b"}}}, "leave out the selector"),
    ],
)
async def test_what_a_folder_cannot_be_is_said(
    world: World, changed_class: dict[str, Any], changed_claim: dict[str, Any], words: str
) -> None:
    world.api.put(CLASS, storage_class(**changed_class))
    world.api.put(CLAIM, claim(**changed_claim))
    assert words in await world.refusal()
    assert world.redbox.requests == []


async def test_an_account_that_does_not_exist_is_named(world: World) -> None:
    world.api.fail(ApiRefused(404, 'serviceaccounts "ci" not found'), verb="token")
    world.api.put(CLAIM, claim(account="ci"))
    assert "namespace alice has no ServiceAccount ci" in await world.refusal()


async def test_a_full_quota_is_one_event_however_often_it_is_tried(world: World) -> None:
    world.redbox.lasting_fault = NotAllowed(problem("alice's quota on this file system is used up"))
    world.api.put(CLAIM, claim())
    async with world.running():
        await world.until(lambda: len(world.redbox.requests) > 3)
        assert world.events == [("ProvisioningFailed", "alice's quota on this file system is used up")]
        world.redbox.lasting_fault = None
        await world.until(lambda: VOLUME in world.api.objects and len(world.events) == 2)


async def test_what_is_missing_is_made_later(world: World) -> None:
    world.clusters.followed, followed = {}, world.clusters.followed
    world.api.put(CLASS, storage_class(waits=False, parameters={"cluster": "hpc1"}))
    world.api.put(CLAIM, claim(node=""))
    async with world.running():
        await world.until(lambda: world.events)
        world.clusters.followed = followed
        for callback in world.clusters.on_change:
            callback()
        await world.until(lambda: VOLUME in world.api.objects)


# -- crashes and deletions in between


async def test_a_crash_between_folder_and_volume_makes_no_second_folder(world: World) -> None:
    world.api.fail(ApiUnreachable("killed"), verb="create", kind="PersistentVolume")
    world.api.put(CLAIM, claim())
    async with world.running():
        await world.until(lambda: world.redbox.requests)
    world.api.recover()
    await world.provisioned()
    assert world.redbox.folders == {UID}
    assert [reason for reason, _ in world.events] == ["ProvisioningSucceeded"]


async def test_a_claim_that_is_deleted_meanwhile_leaves_no_folder(world: World) -> None:
    world.api.put(CLAIM, claim())
    world.redbox.during_put = lambda: world.api.remove(CLAIM)
    async with world.running():
        await world.until(lambda: ("delete", OWN, UID) in world.redbox.requests)
    assert world.redbox.folders == set()
    assert VOLUME not in world.api.objects


async def test_a_claim_whose_folder_was_only_requested_leaves_none_either(world: World) -> None:
    world.redbox.lasting_fault = Unreachable("no answer within 60 s")
    world.api.put(CLAIM, claim())
    async with world.running():
        await world.until(lambda: world.events)
        world.redbox.folders.add(UID)  # it was made, and the answer lost
        world.redbox.lasting_fault = None
        world.api.remove(CLAIM)
        await world.until(lambda: not world.redbox.folders)
    assert VOLUME not in world.api.objects


async def test_a_volume_that_was_made_without_an_answer_keeps_its_folder(world: World) -> None:
    """Its reclaimPolicy decides, and not the provisioner's haste."""
    fault = world.api.fail(ApiUnreachable("no answer"), verb="create", kind="PersistentVolume")
    world.api.put(CLAIM, claim())
    async with world.running():
        await world.until(lambda: world.redbox.folders)
        world.api.objects[VOLUME] = volume(policy="Retain", phase="Released")  # seen by no watch yet
        world.api.remove(CLAIM)
        await world.until(lambda: ("get", VOLUME) in world.api.requests)
    assert fault.error
    assert world.redbox.folders == {UID}


# -- deleting


async def test_a_released_volume_is_deleted_after_its_folder(world: World) -> None:
    world.redbox.folders.add(UID)
    world.api.put(VOLUME, volume())
    async with world.running():
        await world.until(lambda: "watch PersistentVolume" in world.api.asked)
        assert world.redbox.requests == []
        world.api.put(VOLUME, volume(phase="Released"))
        await world.until(lambda: VOLUME not in world.api.objects)
    assert world.redbox.requests == [("delete", OWN, UID)]
    assert world.redbox.folders == set()


async def test_a_retained_volume_and_its_folder_stay(world: World) -> None:
    world.redbox.folders.add(UID)
    world.api.put(VOLUME, volume(phase="Released", policy="Retain"))
    async with world.running():
        await world.until(lambda: "watch PersistentVolume" in world.api.asked)
        assert world.redbox.requests == []
        await world.api.delete(VOLUME)  # by an administrator: the volume goes, the folder stays
        await world.until(lambda: VOLUME not in world.api.objects)
    assert world.redbox.folders == {UID}


async def test_a_bound_volume_that_is_deleted_waits_for_its_claim(world: World) -> None:
    world.redbox.folders.add(UID)
    world.api.put(VOLUME, volume())
    async with world.running():
        await world.api.delete(VOLUME)
        await world.until(lambda: "watch PersistentVolume" in world.api.asked)
        assert VOLUME in world.api.objects
        assert world.redbox.requests == []


async def test_a_red_box_that_is_away_keeps_the_volume(world: World) -> None:
    world.redbox.folders.add(UID)
    world.redbox.faults = [Unreachable("away"), Busy(problem("takes long and goes on", 503))]
    world.api.put(VOLUME, volume(phase="Released"))
    async with world.running():
        await world.until(lambda: VOLUME not in world.api.objects)
    assert world.redbox.requests == [("delete", OWN, UID)] * 3
    assert world.events[0] == ("VolumeFailedDelete", "away")


async def test_a_long_deletion_is_no_failure(world: World) -> None:
    world.redbox.folders.add(UID)
    world.redbox.faults = [Busy(problem("takes long and goes on", 503))]
    world.api.put(VOLUME, volume(phase="Released"))
    async with world.running():
        await world.until(lambda: VOLUME not in world.api.objects)
    assert world.events == []


async def test_a_folder_that_red_box_has_no_record_of_is_left_and_said(world: World) -> None:
    world.api.put(VOLUME, volume(phase="Released"))
    async with world.running():
        await world.until(lambda: world.events)
    [(reason, message)] = world.events
    assert reason == "VolumeFailedDelete"
    assert "role volumes" in message
    assert FOLDER in message
    assert VOLUME in world.api.objects


async def test_a_crash_between_folder_and_volume_ends_the_volume_all_the_same(world: World) -> None:
    world.redbox.folders.add(UID)
    world.api.put(VOLUME, volume(phase="Released"))
    fault = world.api.fail(ApiUnreachable("killed"), verb="delete", kind="PersistentVolume", times=1)
    async with world.running():
        await world.until(lambda: fault.times == 0)
        world.redbox.folders.add(UID)  # red-box answers a repeated DELETE as the first one
        await world.until(lambda: VOLUME not in world.api.objects)


async def test_a_finalizer_that_is_left_is_lifted(world: World) -> None:
    world.redbox.folders.add(UID)
    world.api.fail(ApiUnreachable("killed"), verb="finalizers", kind="PersistentVolume", times=1)
    world.api.put(VOLUME, volume(phase="Released"))
    async with world.running():
        await world.until(lambda: "finalizers PersistentVolume" in world.api.asked)
        world.redbox.folders.add(UID)
        await world.until(lambda: VOLUME not in world.api.objects)
