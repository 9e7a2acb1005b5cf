"""Released volumes: first the folder goes, then the volume; or both stay."""

from __future__ import annotations

from redbox_api.errors import Busy, Unreachable
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiUnreachable, ResourcePath
from redbox_resourced.volumes.names import DRIVER
from redbox_resourced.volumes.provisioner import AT_ONCE, DELETES_AT_ONCE, DELETES_OF_A_NAMESPACE
from tests.resourced.volumes.factories import FOLDER, UID, claim, volume
from tests.resourced.volumes.harness import CLAIM, OWN, VOLUME, World, problem


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


def release_many(world: World, namespace: str, *, number: int) -> None:
    """Released volumes of four accounts, whose folders are slow to delete."""
    for index in range(number):
        handle = f"{namespace}-{index}"
        attributes = {"cluster": "hpc1", "path": FOLDER, "serviceAccount": f"account-{index % 4}"}
        csi = {"driver": DRIVER, "volumeHandle": handle, "volumeAttributes": attributes}
        claim_ref = {"namespace": namespace, "name": "data", "uid": handle}
        body = volume(phase="Released", csi=csi, claimRef=claim_ref)
        body["metadata"]["name"] = f"pvc-{handle}"
        world.api.put(ResourcePath(kinds.PERSISTENT_VOLUME, f"pvc-{handle}"), body)
        world.redbox.folders.add(handle)
        world.redbox.slow_deletes.add(handle)


async def test_slow_deletions_of_one_namespace_keep_nobody_from_deleting_or_making_folders(
    world: World,
) -> None:
    release_many(world, "mallory", number=2 * AT_ONCE)
    async with world.running():
        await world.until(lambda: len(world.redbox.requests) == DELETES_OF_A_NAMESPACE)
        world.redbox.folders.add(UID)
        world.api.put(VOLUME, volume(phase="Released"))
        await world.until(lambda: VOLUME not in world.api.objects)
        world.api.put(CLAIM, claim())
        await world.until(lambda: VOLUME in world.api.objects)


async def test_slow_deletions_of_many_namespaces_keep_nobody_from_making_folders(world: World) -> None:
    for number in range(DELETES_AT_ONCE):
        release_many(world, f"slow-{number}", number=2)
    async with world.running():
        await world.until(lambda: len(world.redbox.requests) == DELETES_AT_ONCE)
        world.api.put(CLAIM, claim())
        await world.until(lambda: VOLUME in world.api.objects)
