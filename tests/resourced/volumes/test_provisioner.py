"""From a claim to a folder and a volume."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from redbox_api.errors import NotAllowed, Unreachable
from redbox_api.models import VolumeRequest
from redbox_clusters.names import FINALIZER_VOLUME
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, ApiUnreachable, Object, PodRef, ResourcePath
from redbox_resourced.volumes import provisioner as provisioner_module
from redbox_resourced.volumes.names import (
    PROVISIONED_BY,
    PROVISIONER,
    STORAGE_PROVISIONER,
)
from tests.resourced.factories import slurm_cluster
from tests.resourced.volumes.factories import (
    FOLDER,
    UID,
    claim,
    consumer,
    storage_class,
    virtual_node,
    volume,
)
from tests.resourced.volumes.harness import CLAIM, CLASS, OWN, VOLUME, Redbox, World, pod_of, problem


async def test_a_claim_gets_a_folder_of_its_account_and_a_volume(world: World) -> None:
    world.api.put(CLAIM, claim())
    made = await world.provisioned()
    assert world.redbox.requests == [("put", "token of alice/default for redbox.dev/hpc1/x", UID)]
    assert world.redbox.asked == [VolumeRequest(claim="data")]
    assert made["metadata"]["annotations"] == {PROVISIONED_BY: PROVISIONER}
    assert made["metadata"]["finalizers"] == [FINALIZER_VOLUME]
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
    world.api.remove(ResourcePath(kinds.NODE, "hpc1.debug"))
    world.api.put(CLAIM, claim())
    await world.provisioned()


async def test_claims_of_others_are_left_alone(world: World) -> None:
    foreign = claim()
    foreign["metadata"]["annotations"] = {"volume.kubernetes.io/storage-provisioner": "ebs.csi.aws.com"}
    world.api.put(CLAIM, foreign)
    world.api.put(ResourcePath(kinds.PERSISTENT_VOLUME_CLAIM, "bound", "alice"), claim(bound=True))
    world.api.put(VOLUME, {**volume(phase="Released"), "metadata": {"name": "theirs", "annotations": {}}})
    async with world.running():
        await world.until(lambda: "watch PersistentVolume" in world.api.asked)
    assert (world.redbox.requests, world.events, world.api.writes) == ([], [], 0)


# -- what cannot be made


def foreign_claim(node: str) -> Object:
    body = claim(node=node, storageClassName="fast")
    body["metadata"]["annotations"][STORAGE_PROVISIONER[0]] = "ebs.csi.aws.com"
    return body


async def test_a_class_that_makes_nothing_for_a_virtual_node_is_named_with_the_cure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioner_module, "FOREIGN_PATIENCE_S", 0.05)
    world.api.put(CLAIM, foreign_claim("hpc1.debug"))
    message = await world.refusal()
    assert message.startswith("ebs.csi.aws.com, the provisioner of StorageClass fast, has made no volume")
    assert "make this claim again with a StorageClass of provisioner redbox.dev/directory" in message
    assert world.redbox.requests == []


@pytest.mark.parametrize("node", ["worker-1", "hpc1.gone"])
async def test_a_claim_of_another_provisioner_for_another_node_is_not_explained(
    world: World, monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    monkeypatch.setattr(provisioner_module, "FOREIGN_PATIENCE_S", 0.0)
    world.api.put(CLAIM, foreign_claim(node))
    await only_ours_is_explained(world)


async def test_another_provisioner_has_time_to_make_a_volume(world: World) -> None:
    world.api.put(CLAIM, foreign_claim("hpc1.debug"))
    await only_ours_is_explained(world)


async def only_ours_is_explained(world: World) -> None:
    """A claim that no pod uses, and that comes after the others."""
    ours = claim(account="ci")
    ours["metadata"]["name"] = "unused"
    async with world.running():
        await world.until(lambda: "watch PersistentVolumeClaim" in world.api.asked)
        world.api.put(ResourcePath(kinds.PERSISTENT_VOLUME_CLAIM, "unused", "alice"), ours)
        await world.until(lambda: world.api.events)
    assert [message for _, message in world.events] == [
        "no pod of ServiceAccount ci uses this claim: make one"
    ]


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
    world.api.put(ResourcePath(kinds.NODE, name), node)
    world.api.put(CLAIM, claim(node=name))
    assert f"node {name}, which is not a virtual node" in await world.refusal()


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
        ({}, {"volumeMode": "Block"}, "not a block device"),
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


async def test_a_folder_is_discarded_where_its_red_box_is_by_then(world: World) -> None:
    world.redbox.lasting_fault = Unreachable("this client is closed")
    world.api.put(CLAIM, claim())
    async with world.running():
        await world.until(lambda: world.events)
        world.redbox = world.clusters.followed["hpc1"].client = Redbox()  # at another endpoint
        world.redbox.folders.add(UID)
        world.api.remove(CLAIM)
        await world.until(lambda: not world.redbox.folders)


async def test_a_claim_does_not_wait_for_the_red_box_of_an_earlier_one_of_its_name(world: World) -> None:
    world.redbox.lasting_fault = Unreachable("no answer within 60 s")
    other = world.clusters.followed["hpc2"] = SimpleNamespace(cluster=slurm_cluster("hpc2"), client=Redbox())
    at_once = storage_class(name="other", waits=False, parameters={"cluster": "hpc2"})
    world.api.put(ResourcePath(kinds.STORAGE_CLASS, "other"), at_once)
    later = claim(node="", storageClassName="other")
    later["metadata"]["uid"] = "later-uid"
    world.api.put(CLAIM, claim())
    async with world.running():
        await world.until(lambda: world.events)
        world.api.remove(CLAIM)
        world.api.put(CLAIM, later)
        await world.until(lambda: ResourcePath(kinds.PERSISTENT_VOLUME, "pvc-later-uid") in world.api.objects)
        world.redbox.folders.add(UID)
        world.redbox.lasting_fault = None
        await world.until(lambda: not world.redbox.folders)
    assert other.client.folders == {"later-uid"}


async def test_a_volume_that_was_made_without_an_answer_keeps_its_folder(world: World) -> None:
    """Its reclaimPolicy decides, and not the provisioner's haste."""
    world.api.fail(ApiUnreachable("no answer"), verb="create", kind="PersistentVolume")
    world.api.put(CLAIM, claim())
    async with world.running():
        await world.until(lambda: world.redbox.folders)
        world.api.objects[VOLUME] = volume(policy="Retain", phase="Released")  # seen by no watch yet
        world.api.remove(CLAIM)
        await world.until(lambda: ("get", VOLUME) in world.api.requests)
    assert world.redbox.folders == {UID}


async def test_a_class_that_is_gone_or_foreign_is_named(world: World) -> None:
    """A tenant can write the annotation that asks for this provisioner on any claim."""
    world.api.put(CLASS, storage_class(provisioner="ebs.csi.aws.com"))
    world.api.put(CLAIM, claim())
    assert "StorageClass redbox is gone, or not of provisioner" in await world.refusal()
    assert world.redbox.requests == []


async def test_a_red_box_that_hangs_delays_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provisioner_module, "AT_ONCE", 1)
    other = Redbox()
    other.hangs = True
    cluster = slurm_cluster("hpc2")
    world.clusters.followed["hpc2"] = SimpleNamespace(cluster=cluster, client=other)
    slow_class = storage_class(name="slow", waits=False, parameters={"cluster": "hpc2"})
    world.api.put(ResourcePath(kinds.STORAGE_CLASS, "slow"), slow_class)
    slow = claim(node="", storageClassName="slow")
    slow["metadata"] |= {"name": "slow", "uid": "slow-uid"}
    world.api.put(ResourcePath(kinds.PERSISTENT_VOLUME_CLAIM, "slow", "alice"), slow)
    for_slow = consumer(claim="slow")
    world.api.put(ResourcePath(kinds.POD, "pod-of-slow", "alice"), for_slow)
    async with world.running():
        await world.until(lambda: other.requests)
        world.api.put(CLAIM, claim())
        await world.until(lambda: VOLUME in world.api.objects)


async def test_one_namespace_takes_few_places_however_many_accounts_it_has(world: World) -> None:
    """Each waits for red-box, which waits for the home or the agent of the account's user."""
    most = provisioner_module.OF_A_NAMESPACE
    for number in range(3 * most):
        name = f"data-{number}"
        body = claim(account=name)
        body["metadata"] |= {"name": name, "namespace": "mallory", "uid": f"uid-{number}"}
        world.api.put(ResourcePath(kinds.PERSISTENT_VOLUME_CLAIM, name, "mallory"), body)
        world.api.put(ResourcePath(kinds.POD, f"pod-{number}", "mallory"), consumer(name, claim=name))
    world.redbox.hangs = True
    async with world.running():
        await world.until(lambda: len(world.redbox.requests) == most)
        world.redbox.hangs = False
        world.api.put(CLAIM, claim())
        await world.until(lambda: VOLUME in world.api.objects)
        assert len(world.redbox.requests) == most + 1


async def test_the_token_is_bound_to_a_pod_of_the_account_that_uses_the_claim(world: World) -> None:
    world.api.put(CLAIM, claim(account="ci"))
    await world.provisioned()
    assert set(world.api.tokens_of) == {PodRef("pod-of-ci", "uid-of-ci")}


@pytest.mark.parametrize(
    ("pods", "sentence"),
    [
        ([], "no pod of ServiceAccount default uses this claim"),
        ([consumer(claim="other")], "no pod of ServiceAccount default uses this claim"),
        ([consumer(phase="Succeeded")], "no pod of ServiceAccount default uses this claim"),
        ([consumer("ci")], "this claim is for ServiceAccount default, and its pod has ci"),
    ],
)
async def test_without_such_a_pod_there_is_no_folder(world: World, pods: list[Object], sentence: str) -> None:
    for account in ("default", "ci"):
        world.api.remove(pod_of(account))
    for pod in pods:
        world.api.put(ResourcePath(kinds.POD, pod["metadata"]["name"], "alice"), pod)
    world.api.put(CLAIM, claim())
    assert sentence in await world.refusal()
    assert world.redbox.requests == []
