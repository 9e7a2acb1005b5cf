"""What the reconciler does about one SlurmJob: its beginning, its companion, its attempts."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from redbox_api.feed import RowKey
from redbox_api.models import Phase
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, ResourcePath
from redbox_operator.api.constants import FINALIZER
from redbox_operator.api.slurmjob import SlurmJobRef
from tests.operator.factories import slurm_job
from tests.operator.harness import Stand


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


# ---------------------------------------------------------------------------------------------- beginning


async def test_the_finalizer_comes_before_anything_is_made(stand: Stand) -> None:
    stand.api.fail(ApiRefused(403, "exceeded quota"), verb="create", kind="Pod")
    await stand.apply(finalizers=())
    assert stand.finalizers == [FINALIZER]
    assert stand.pod_names == []


async def test_a_companion_is_made_and_its_uid_and_request_are_written(stand: Stand) -> None:
    await stand.apply()
    (pod,) = stand.api.of_kind("Pod")
    recorded = stand.status["companion"]
    assert (recorded["name"], recorded["uid"], recorded["attempt"]) == ("cow-job", pod["metadata"]["uid"], 1)
    assert recorded["request"].startswith("sha256:")


async def test_a_look_at_what_has_not_changed_writes_nothing(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    writes = stand.api.writes
    for _ in range(3):
        await stand.look()
    stand.start()
    await stand.look()
    assert stand.api.writes == writes


async def test_what_red_box_says_becomes_the_status_and_a_bad_end_an_event(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    assert (stand.status["phase"], stand.status["jobID"]) == ("Running", "7")
    await stand.at_redbox(Phase.FAILED)
    assert stand.event_reasons() == ["Failed"]


async def test_a_row_of_another_owner_with_the_same_key_is_not_believed(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED, namespace="elsewhere")
    assert stand.status["phase"] == "Pending"


async def test_a_job_for_a_slurmcluster_that_cannot_be_used_waits_and_says_why(stand: Stand) -> None:
    stand.links.clear()
    stand.troubles["hpc1"] = "spec.caBundle is not a PEM certificate: none"
    await stand.apply()
    assert stand.conditions["Submitted"] == ("False", "ClusterMisconfigured")
    assert "caBundle" in stand.status["message"]
    assert (stand.event_reasons(), stand.pod_names) == (["ClusterMisconfigured"], [])
    stand.links["hpc1"] = stand.link
    stand.troubles.clear()
    await stand.look()
    assert stand.pod_names == ["cow-job"]


async def test_a_slurmcluster_that_cannot_be_used_leaves_no_other_as_the_only_one(stand: Stand) -> None:
    stand.troubles["hpc2"] = "spec.caBundle is not a PEM certificate: none"
    await stand.apply(cluster=None)
    assert stand.conditions["Submitted"] == ("False", "ClusterNotNamed")


async def test_a_spec_that_cannot_be_read_fails_with_one_event(stand: Stand) -> None:
    await stand.apply()
    await stand.change(spec={"backoffLimit": "often"})
    assert stand.pod_names == ["cow-job"]  # it was read when it was submitted
    del stand.api.objects[stand.where]
    raw = {"metadata": {**slurm_job().metadata, "uid": "0aa6-12", "finalizers": [FINALIZER]}}
    stand.api.put(stand.where, {**raw, "spec": {"batch": "#!/bin/sh", "backoffLimit": "often"}})
    await stand.look()
    assert (stand.status["phase"], stand.conditions["Submitted"]) == ("Failed", ("False", "Unreadable"))
    assert stand.event_reasons() == ["Unreadable"]


async def test_the_late_end_of_a_slurmjob_takes_no_timer_from_the_next_one_of_its_name(stand: Stand) -> None:
    """The next one waits for a pod of the one before, which wakes nobody when it goes."""
    await stand.apply()
    stand.reconciler.queue.add_later(stand.ref, 3600)
    stand.reconciler.job_deleted(stand.ref, "uid-of-the-one-before")
    assert stand.ref in stand.reconciler.queue._timers
    stand.reconciler.job_deleted(stand.ref, "0aa6-11")
    assert stand.ref not in stand.reconciler.queue._timers


# ---------------------------------------------------------------------------------------------- companions


async def test_a_pod_of_that_name_that_is_not_ours_is_neither_adopted_nor_deleted(stand: Stand) -> None:
    stand.api.put(
        ResourcePath(kinds.POD, "cow-job", "farm"), {"metadata": {"name": "cow-job", "namespace": "farm"}}
    )
    await stand.apply()
    assert stand.conditions["Submitted"] == ("False", "NameTaken")
    assert "companion" not in stand.status
    assert stand.pod_names == ["cow-job"]


async def test_a_pod_that_only_says_it_is_ours_is_not_believed_but_made_anew(stand: Stand) -> None:
    await stand.apply()
    forged = stand.api.of_kind("Pod")[0]
    stand.api.put(
        ResourcePath(kinds.POD, "cow-job", "farm"),
        {**forged, "metadata": {**forged["metadata"], "uid": "forged"}},
    )
    await stand.pod_ends('{"refused": "forged"}')
    assert stand.status["phase"] == "Pending"
    await stand.look()
    stand.now += timedelta(seconds=5)
    await stand.look()
    assert [pod["metadata"]["uid"] for pod in stand.api.of_kind("Pod")] == [stand.status["companion"]["uid"]]
    assert stand.status["companion"]["uid"] != "forged"


async def test_a_companion_that_was_made_just_before_a_crash_is_made_anew(stand: Stand) -> None:
    await stand.apply()
    there = stand.api.objects[stand.where]
    stand.api.put(stand.where, {key: value for key, value in there.items() if key != "status"})
    orphan = stand.api.of_kind("Pod")[0]["metadata"]["uid"]
    stand.start()
    await stand.look()
    await stand.look()
    (pod,) = stand.api.of_kind("Pod")
    assert pod["metadata"]["uid"] == stand.status["companion"]["uid"] != orphan


async def test_the_end_of_what_was_submitted_just_before_a_crash_is_found(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED)
    stand.link.unlisted, stand.link.rows, stand.link.absent = stand.link.rows, {}, set()
    there = stand.api.objects[stand.where]
    stand.api.put(stand.where, {key: value for key, value in there.items() if key != "status"})
    stand.start()
    for _ in range(3):  # the unrecorded pod goes, another comes, and is recorded
        await stand.look()
    assert (stand.status["phase"], stand.status["jobID"]) == ("Succeeded", "7")


async def test_a_config_map_that_holds_another_request_is_not_ours(stand: Stand) -> None:
    body = {"metadata": {"name": "cow-job", "namespace": "farm"}, "data": {"request.json": "{}"}}
    stand.api.put(ResourcePath(kinds.CONFIG_MAP, "cow-job", "farm"), body)
    await stand.apply()
    assert stand.conditions["Submitted"] == ("False", "NameTaken")
    assert stand.pod_names == []


@pytest.mark.parametrize("labels", [{}, {"redbox.dev/slurmjob-uid": "before"}], ids=["unseen", "watched"])
async def test_what_a_deleted_slurmjob_of_that_name_left_is_cleared_away(
    stand: Stand, labels: dict[str, str]
) -> None:
    gone = {"apiVersion": "redbox.dev/v1alpha1", "kind": "SlurmJob", "name": "cow", "uid": "before"}
    for kind in (kinds.POD, kinds.CONFIG_MAP):
        metadata = {
            "name": "cow-job",
            "namespace": "farm",
            "uid": f"old-{kind}",
            "labels": labels,
            "ownerReferences": [{**gone, "controller": True}],
        }
        left = {"metadata": metadata, "data": {"request.json": "{}"}}
        stand.api.put(ResourcePath(kind, "cow-job", "farm"), left)
    await stand.apply()
    await stand.look()
    (pod,) = stand.api.of_kind("Pod")
    assert pod["metadata"]["uid"] == stand.status["companion"]["uid"] != "old-Pod"
    assert stand.event_reasons() == []


async def test_a_lost_companion_is_made_again_from_the_same_request(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    request = stand.status["companion"]["request"]
    del stand.api.objects[ResourcePath(kinds.POD, "cow-job", "farm")]
    await stand.look()
    assert stand.pod_names == ["cow-job"]
    assert stand.status["companion"]["request"] == request
    assert stand.status["companion"]["replaced"] == 1


async def test_a_companion_that_ended_without_a_final_message_is_made_again(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED)
    first = stand.status["companion"]["uid"]
    await stand.pod_ends("")
    await stand.look()
    assert stand.status["companion"]["uid"] != first
    assert stand.status["phase"] == "Succeeded"


async def test_a_companion_that_said_its_final_message_is_never_made_again(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED)
    await stand.pod_ends('{"final": true, "logs": "complete"}')
    assert stand.status["companion"]["done"] is True
    del stand.api.objects[ResourcePath(kinds.POD, "cow-job", "farm")]
    await stand.look()
    stand.start()
    await stand.look()
    assert stand.pod_names == []


async def test_a_companion_that_keeps_failing_ends_in_a_condition(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    for _ in range(11):
        del stand.api.objects[ResourcePath(kinds.POD, "cow-job", "farm")]
        stand.now += timedelta(seconds=300)
        await stand.look()
    assert stand.pod_names == []
    assert stand.conditions["Synced"] == ("False", "CompanionFails")
    assert stand.status["phase"] == "Running"


async def test_a_refusal_of_kubernetes_is_told_with_its_cure_and_tried_again(stand: Stand) -> None:
    stand.api.fail(
        ApiRefused(403, 'pods "cow-job" is forbidden: exceeded quota: q'), verb="create", kind="Pod"
    )
    await stand.apply()
    assert stand.conditions["Submitted"] == ("False", "QuotaExceeded")
    assert stand.event_reasons() == ["QuotaExceeded"]
    assert await stand.look() is not None
    stand.api.recover()
    await stand.look()
    assert stand.pod_names == ["cow-job"]


async def test_nothing_is_tried_for_ever(stand: Stand) -> None:
    stand.api.fail(
        ApiRefused(403, 'pods "cow-job" is forbidden: exceeded quota: q'), verb="create", kind="Pod"
    )
    await stand.apply()
    for _ in range(200):  # woken by what happens to others
        await stand.look()
    assert stand.status["phase"] == "Pending"
    waited = 0.0
    for _ in range(200):
        pause = await stand.look()
        if pause is None:
            break
        waited += pause
        stand.now += timedelta(seconds=pause)
        stand.uptime_s += pause
    assert stand.conditions["Failed"] == ("True", "Failed")
    assert 3000 < waited < 4500


async def test_the_sleep_of_a_host_is_no_hour_of_tries(stand: Stand) -> None:
    stand.api.fail(
        ApiRefused(403, 'pods "cow-job" is forbidden: exceeded quota: q'), verb="create", kind="Pod"
    )
    await stand.apply()
    stand.now += timedelta(hours=9)
    await stand.look()
    assert stand.status["phase"] == "Pending"
    stand.api.recover()
    await stand.look()
    assert stand.pod_names == ["cow-job"]


async def test_in_a_namespace_that_is_going_nothing_is_made_or_said(stand: Stand) -> None:
    going = "forbidden: unable to create new content in namespace farm because it is being terminated"
    stand.api.fail(ApiRefused(403, going), verb="create", kind="Pod")
    await stand.apply()
    assert stand.status == {}
    assert stand.event_reasons() == []


async def test_a_large_one_is_submitted_whole_and_has_the_same_life(stand: Stand) -> None:
    script = "#!/bin/sh\n" + "".join(f"echo {number}\n" for number in range(5000))
    await stand.apply(finalizers=(), batch=script)
    request = stand.api.objects[ResourcePath(kinds.CONFIG_MAP, "cow-job", "farm")]["data"]["request.json"]
    assert json.loads(request)["batch"] == script
    await stand.at_redbox(Phase.RUNNING)
    assert stand.status["phase"] == "Running"
    writes = stand.api.writes
    stand.api.remove(ResourcePath(kinds.POD, "cow-job", "farm"))
    await stand.look()  # from the same request
    assert stand.pod_names == ["cow-job"]
    assert (
        stand.api.objects[ResourcePath(kinds.CONFIG_MAP, "cow-job", "farm")]["data"]["request.json"]
        == request
    )
    assert stand.api.writes == writes + 3  # a ConfigMap that exists, the pod, and its uid in the status
    await stand.at_redbox(Phase.SUCCEEDED, exit_code=0)
    assert stand.status["phase"] == "Succeeded"


@pytest.mark.parametrize("changed", [{"deletionTimestamp": "2026-11-21T12:00:01Z"}, {"uid": "another"}])
async def test_a_large_one_that_is_deleted_or_made_again_meanwhile_gets_no_pod(
    stand: Stand, changed: dict[str, Any]
) -> None:
    await stand.apply(batch="#!/bin/sh\n" + "".join(f"echo {number}\n" for number in range(5000)))
    stand.cache.remove_companion("farm", "cow-job")
    stand.api.remove(ResourcePath(kinds.POD, "cow-job", "farm"))
    stand.put(metadata=changed)
    writes = stand.api.writes
    await stand.reconciler.reconcile(stand.ref)
    assert stand.api.writes == writes
    assert stand.pod_names == []


# ------------------------------------------------------------------------- what happens between two looks


@pytest.mark.parametrize(
    "changed",
    [
        {"metadata": {"generation": 2, "deletionTimestamp": "2026-11-21T12:00:01Z"}},
        {"metadata": {"generation": 2}, "spec": {"suspend": True}},
        {"metadata": {"annotations": {"redbox.dev/abandon": "true"}}},
    ],
    ids=["deleted", "suspended", "abandoned"],
)
async def test_what_changed_just_before_a_status_was_written_is_due_at_once(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    """The watch tells of it in a version that is older than the one that our write came to."""
    await stand.apply()
    due: list[SlurmJobRef] = []
    monkeypatch.setattr(stand.reconciler.queue, "add", due.append)
    stand.api.before_next_write = lambda: stand.put(**changed)
    await stand.at_redbox(Phase.RUNNING)
    assert stand.ref in due
    cached = stand.cache.get(stand.ref)
    assert cached is not None
    assert cached.being_deleted == ("deletionTimestamp" in changed["metadata"])
    assert cached.spec.suspend == ("spec" in changed)


async def test_a_status_alone_is_nothing_to_look_at_again(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stand.apply()
    due: list[SlurmJobRef] = []
    monkeypatch.setattr(stand.reconciler.queue, "add", due.append)
    await stand.at_redbox(Phase.RUNNING)
    assert stand.status["phase"] == "Running"
    assert not due


async def test_a_change_that_changes_no_status_does_not_count_as_told_late(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    writes = stand.api.writes
    await stand.at_redbox(Phase.RUNNING, cancel_requested=True)
    assert stand.api.writes == writes
    assert stand.link.lag.end(RowKey.of(stand.row_of(Phase.RUNNING))) is None
